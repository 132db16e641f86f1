//! What the processes of one user take of the server, all together, and how long others have waited for them.
//!
//! A user may have as much of everything as he leaves to others, so whoever comes next always finds some. Root could stop the server as well, so it is trusted with all of it.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What there is only so much of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Goods {
    /// Files that processes have attached, one or several together: a mapping of the server's, and mostly a descriptor.
    Attachments,
    /// Bytes of the memory in which processes see where blocks are.
    MapBytes,
    /// Blocks that nobody else gets, because a process has not given back what it has mapped of them.
    SeenBlocks,
}

const KINDS: usize = Goods::SeenBlocks as usize + 1;

/// How long requests of others may wait for processes of one user, and for those of all users: at once, and for each second.
const WAIT_AT_ONCE: Duration = Duration::from_secs(1);
const WAIT_AT_ONCE_FOR_ALL: Duration = Duration::from_secs(2);
/// A tenth of the time that goes by comes back.
const COMES_BACK: u32 = 10;

/// How much there is of everything.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) attachments: u64,
    pub(super) map_bytes: u64,
    pub(super) seen_blocks: u64,
}

/// The accounts of all users.
#[derive(Debug)]
pub(super) struct Accounts(Mutex<Book>);

#[derive(Debug)]
struct Book {
    limits: [u64; KINDS],
    taken: [u64; KINDS],
    waits: Credit,
    users: HashMap<u32, Entry>,
}

/// What a user has.
#[derive(Debug)]
struct Entry {
    taken: [u64; KINDS],
    waits: Credit,
}

/// Time that may be spent, and comes back slowly.
#[derive(Clone, Copy, Debug)]
struct Credit {
    most: Duration,
    left: Duration,
    at: Instant,
}

impl Credit {
    fn new(most: Duration, now: Instant) -> Credit {
        Credit {
            most,
            left: most,
            at: now,
        }
    }

    fn refill(&mut self, now: Instant) {
        let back = now.saturating_duration_since(self.at) / COMES_BACK;
        self.left = self.left.saturating_add(back).min(self.most);
        self.at = now;
    }

    fn spend(&mut self, time: Duration) {
        self.left = self.left.saturating_sub(time);
    }
}

impl Book {
    fn entry(&mut self, user: u32, now: Instant) -> &mut Entry {
        self.users.entry(user).or_insert_with(|| Entry {
            taken: [0; KINDS],
            waits: Credit::new(WAIT_AT_ONCE, now),
        })
    }

    /// Whether the user may have so much more.
    fn allows(&self, user: u32, goods: usize, amount: u64) -> bool {
        let free = self.limits[goods].saturating_sub(self.taken[goods]);
        let own = self.users.get(&user).map_or(0, |entry| entry.taken[goods]);
        amount <= free && (user == 0 || own.saturating_add(amount) <= free)
    }

    fn add(&mut self, user: u32, goods: usize, amount: u64) {
        self.taken[goods] += amount;
        self.entry(user, Instant::now()).taken[goods] += amount;
    }

    fn give_back(&mut self, user: u32, goods: usize, amount: u64) {
        let now = Instant::now();
        self.taken[goods] -= amount;
        let entry = self.entry(user, now);
        entry.taken[goods] -= amount;
        entry.waits.refill(now);
        // Who has nothing and has made nobody wait is as one who never came.
        if entry.taken == [0; KINDS] && entry.waits.left == entry.waits.most {
            self.users.remove(&user);
        }
    }

    /// How long others may wait for the user yet.
    fn patience(&mut self, user: u32, now: Instant) -> Duration {
        if user == 0 {
            return Duration::MAX;
        }
        self.waits.refill(now);
        let own = self.users.get_mut(&user).map_or(WAIT_AT_ONCE, |entry| {
            entry.waits.refill(now);
            entry.waits.left
        });
        own.min(self.waits.left)
    }

    /// Others have waited for the user so much longer: whether there is any patience left.
    fn spend(&mut self, user: u32, time: Duration, now: Instant) -> bool {
        if user == 0 {
            return true;
        }
        self.waits.refill(now);
        let own = &mut self.entry(user, now).waits;
        own.refill(now);
        own.spend(time);
        let is_left = !own.left.is_zero();
        self.waits.spend(time);
        is_left && !self.waits.left.is_zero()
    }
}

impl Accounts {
    pub(super) fn new(limits: Limits) -> Arc<Accounts> {
        Arc::new(Accounts(Mutex::new(Book {
            limits: [limits.attachments, limits.map_bytes, limits.seen_blocks],
            taken: [0; KINDS],
            waits: Credit::new(WAIT_AT_ONCE_FOR_ALL, Instant::now()),
            users: HashMap::new(),
        })))
    }

    pub(super) fn of(self: &Arc<Self>, user: u32) -> Account {
        Account {
            accounts: Arc::clone(self),
            user,
        }
    }
}

/// The account of one user.
#[derive(Clone, Debug)]
pub(super) struct Account {
    accounts: Arc<Accounts>,
    user: u32,
}

impl Account {
    /// Takes nothing yet, and may take more later.
    pub(super) fn nothing(&self, goods: Goods) -> Taken {
        Taken {
            account: self.clone(),
            goods,
            amount: 0,
        }
    }

    /// Takes so much, allowed or not: it is gone already.
    pub(super) fn has_taken(&self, goods: Goods, amount: u64) -> Taken {
        self.accounts
            .0
            .lock()
            .add(self.user, goods as usize, amount);
        Taken {
            account: self.clone(),
            goods,
            amount,
        }
    }

    /// Whether the user has no more than he leaves to others.
    pub(super) fn is_within(&self, goods: Goods) -> bool {
        let book = self.accounts.0.lock();
        book.allows(self.user, goods as usize, 0)
    }

    /// How long others may wait for his processes yet.
    pub(super) fn patience(&self) -> Duration {
        let mut book = self.accounts.0.lock();
        book.patience(self.user, Instant::now())
    }

    /// Others have waited for one of his processes so much longer: whether there is any patience left with him.
    pub(super) fn spend(&self, time: Duration) -> bool {
        let mut book = self.accounts.0.lock();
        book.spend(self.user, time, Instant::now())
    }
}

/// What was taken of something. Dropping it gives it back.
#[derive(Debug)]
pub(super) struct Taken {
    account: Account,
    goods: Goods,
    amount: u64,
}

impl Taken {
    /// Takes so much more, if the user may have it: whether he does.
    pub(super) fn grow(&mut self, more: u64) -> bool {
        let (user, goods) = (self.account.user, self.goods as usize);
        let mut book = self.account.accounts.0.lock();
        let is_allowed = book.allows(user, goods, more);
        if is_allowed {
            book.add(user, goods, more);
            self.amount += more;
        }
        is_allowed
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let mut book = self.account.accounts.0.lock();
        book.give_back(self.account.user, self.goods as usize, self.amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accounts() -> Arc<Accounts> {
        Accounts::new(Limits {
            attachments: 100,
            map_bytes: 1 << 20,
            seen_blocks: 10,
        })
    }

    #[test]
    fn a_user_leaves_as_much_as_he_has_and_root_nothing() {
        let accounts = accounts();
        let mut first = accounts.of(1000).nothing(Goods::Attachments);
        let mut again = accounts.of(1000).nothing(Goods::Attachments);
        let mut second = accounts.of(1001).nothing(Goods::Attachments);
        assert!(first.grow(30) && again.grow(20) && !again.grow(1));
        assert!(second.grow(25) && !second.grow(1));
        let mut root = accounts.of(0).nothing(Goods::Attachments);
        assert!(root.grow(25) && !root.grow(1));
        drop(root);
        drop(first);
        assert!(second.grow(10), "given back");
        drop((again, second));
        assert!(accounts.0.lock().users.is_empty(), "nothing is left");
    }

    #[test]
    fn what_is_gone_already_is_counted_and_no_more_is_allowed() {
        let accounts = accounts();
        let account = accounts.of(1000);
        assert!(account.is_within(Goods::SeenBlocks));
        let taken = account.has_taken(Goods::SeenBlocks, 12);
        assert!(!account.is_within(Goods::SeenBlocks));
        drop(taken);
        assert!(account.is_within(Goods::SeenBlocks));
    }

    #[test]
    fn patience_ends_for_a_user_and_for_all_and_comes_back() {
        let accounts = accounts();
        let mut book = accounts.0.lock();
        let (now, most) = (Instant::now(), WAIT_AT_ONCE);
        assert!(book.spend(1000, most / 2, now) && !book.spend(1000, most / 2, now));
        assert!(book.spend(1001, most / 2, now), "another user");
        let later = now + most;
        assert!(book.spend(1000, most / 20, later), "a tenth came back");
        assert!(!book.spend(1000, most / 20, later));
        for user in 2000..2004 {
            book.spend(user, most / 2, later);
        }
        assert!(!book.spend(2004, most / 20, later), "all together");
        assert!(book.spend(0, 10 * most, later), "root is trusted");
    }

    #[test]
    fn who_comes_back_is_remembered() {
        let accounts = accounts();
        let account = accounts.of(1000);
        assert!(!account.spend(2 * WAIT_AT_ONCE));
        drop(account.has_taken(Goods::Attachments, 1));
        assert!(!account.spend(Duration::from_millis(1)));
    }
}
