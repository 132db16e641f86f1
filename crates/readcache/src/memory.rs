//! How much memory the machine has left.

use std::path::{Path, PathBuf};

/// Memory of the machine, or of the control group that this process lives in, whichever has less left.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Memory {
    /// Bytes that programs can still take without others losing theirs.
    pub available_bytes: u64,
    /// All there are.
    pub total_bytes: u64,
}

impl Memory {
    /// What the kernel says now; `None` where it says nothing.
    pub fn now() -> Option<Memory> {
        let machine = Memory::of_machine()?;
        let group = Memory::of_control_group();
        Some(match group {
            Some(group) if group.available_bytes < machine.available_bytes => group,
            _ => machine,
        })
    }

    fn of_machine() -> Option<Memory> {
        parse_meminfo(&std::fs::read_to_string("/proc/meminfo").ok()?)
    }

    /// The tightest limit on the way up from this process's group.
    fn of_control_group() -> Option<Memory> {
        let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        let path = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
        let mut folder = PathBuf::from("/sys/fs/cgroup").join(path);
        let mut tightest: Option<Memory> = None;
        while folder.starts_with("/sys/fs/cgroup") {
            if let Some(memory) = limit_of(&folder)
                && tightest.is_none_or(|other| memory.available_bytes < other.available_bytes)
            {
                tightest = Some(memory);
            }
            if !folder.pop() {
                break;
            }
        }
        tightest
    }
}

fn limit_of(folder: &Path) -> Option<Memory> {
    let number = |name: &str| {
        let text = std::fs::read_to_string(folder.join(name)).ok()?;
        text.trim().parse::<u64>().ok()
    };
    // "max" is no number, so a group without a limit is passed over.
    let total_bytes = number("memory.max")?;
    // What the kernel could drop at once is available.
    let statistics = std::fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
    let droppable = statistics
        .lines()
        .find_map(|line| line.strip_prefix("inactive_file ")?.parse::<u64>().ok());
    let used = number("memory.current")?.saturating_sub(droppable.unwrap_or(0));
    Some(Memory {
        available_bytes: total_bytes.saturating_sub(used),
        total_bytes,
    })
}

fn parse_meminfo(text: &str) -> Option<Memory> {
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        let kibibytes = line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?;
        kibibytes.checked_mul(1024)
    };
    Some(Memory {
        available_bytes: field("MemAvailable:")?,
        total_bytes: field("MemTotal:")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_table_is_understood() {
        let text = "MemTotal:       16 kB\nMemFree:  1 kB\nMemAvailable:    9 kB\n";
        let wanted = Memory {
            available_bytes: 9 << 10,
            total_bytes: 16 << 10,
        };
        assert_eq!(parse_meminfo(text), Some(wanted));
        assert_eq!(parse_meminfo("MemTotal: 16 kB\n"), None);
        assert_eq!(parse_meminfo("MemTotal: 16 kB\nMemAvailable: x kB\n"), None);
    }

    #[test]
    fn this_machine_has_memory() {
        let memory = Memory::now().expect("a Linux machine");
        assert!(memory.available_bytes > 0 && memory.available_bytes <= memory.total_bytes);
    }

    #[test]
    fn a_group_has_what_its_limit_leaves() {
        let folder = std::env::temp_dir().join(format!("perdure-group-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("folder");
        let write =
            |name: &str, text: &str| std::fs::write(folder.join(name), text).expect("write");
        write("memory.max", "max\n");
        write("memory.current", "600\n");
        assert_eq!(limit_of(&folder), None);
        write("memory.max", "1000\n");
        write("memory.stat", "anon 500\ninactive_file 50\n");
        let wanted = Memory {
            available_bytes: 450,
            total_bytes: 1000,
        };
        assert_eq!(limit_of(&folder), Some(wanted));
        std::fs::remove_dir_all(&folder).expect("clean up");
    }
}
