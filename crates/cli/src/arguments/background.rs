//! The word by which this program starts itself as a server in the background. No option, so that nobody is offered it.

use server::control::Temporary;
use std::ffi::OsString;

/// The words, and what each says of the mount.
const WORDS: [(&str, Option<Temporary>); 3] = [
    ("--background-server", None),
    (
        "--background-server=run",
        Some(Temporary { directory: false }),
    ),
    (
        "--background-server=run-with-directory",
        Some(Temporary { directory: true }),
    ),
];

/// A server in the background.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Background {
    /// Set if it is for a program.
    pub(crate) temporary: Option<Temporary>,
}

impl Background {
    pub(crate) fn word(self) -> &'static str {
        let known = WORDS
            .iter()
            .find(|(_, temporary)| *temporary == self.temporary);
        known.map_or(WORDS[0].0, |(word, _)| word)
    }

    /// Takes the word, which follows `mount`, from the command line.
    pub(crate) fn take(words: &mut Vec<OsString>) -> Option<Background> {
        if words.get(1)? != "mount" {
            return None;
        }
        let (_, temporary) = WORDS
            .iter()
            .find(|(word, _)| words.get(2).is_some_and(|given| given == word))?;
        words.remove(2);
        Some(Background {
            temporary: *temporary,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_is_taken_and_says_the_same() {
        for (word, temporary) in WORDS {
            let background = Background { temporary };
            assert_eq!(background.word(), word);
            let mut words = ["perdure", "mount", word, "/p"]
                .map(OsString::from)
                .to_vec();
            assert_eq!(Background::take(&mut words), Some(background));
            assert_eq!(words, ["perdure", "mount", "/p"]);
            assert_eq!(Background::take(&mut words), None);
        }
    }
}
