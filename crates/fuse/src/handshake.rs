//! INIT: kernel and server agree on the version and on features.

use std::io;

use zerocopy::{FromBytes, IntoBytes};

use crate::abi::{self, READ_BUFFER_BYTES_MIN};
use crate::device::{Device, Taken};
use crate::dispatch::Message;
use crate::filesystem::Filesystem;
use crate::opcode::Opcode;
use crate::types::InitFlags;

const PAGE_BYTES: u32 = 4096;
/// Room for the part of a WRITE before its data, in a page of its own.
const BEFORE_DATA_BYTES: usize = 4096;
const MAX_WRITE_DEFAULT: u32 = 1 << 20;
const MAX_BACKGROUND_DEFAULT: u16 = 16;

/// Features of a connection, offered and wanted.
#[derive(Clone, Debug)]
pub struct Config {
    offered: InitFlags,
    wanted: InitFlags,
    /// Longest WRITE in bytes. The kernel has a limit of its own.
    pub max_write_bytes: u32,
    /// Requests that the kernel sends without a waiting caller.
    pub max_background: u16,
    /// How many file systems may lie below those that files are passed through to.
    pub max_stack_depth: u32,
}

impl Config {
    fn new(offered: InitFlags) -> Config {
        let always = InitFlags::ASYNC_READ | InitFlags::BIG_WRITES | InitFlags::MAX_PAGES;
        Config {
            offered,
            wanted: always,
            max_write_bytes: MAX_WRITE_DEFAULT,
            max_background: MAX_BACKGROUND_DEFAULT,
            max_stack_depth: 0,
        }
    }

    /// Features that the kernel offers.
    pub fn offered(&self) -> InitFlags {
        self.offered
    }

    /// Asks for features, and tells whether the kernel has them all. Otherwise none is asked for.
    pub fn want(&mut self, flags: InitFlags) -> bool {
        let has_all = self.offered.contains(flags);
        if has_all {
            self.wanted |= flags;
        }
        has_all
    }
}

/// The agreement of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Agreed {
    pub(crate) is_over_io_uring: bool,
    /// The longest data of a request or an answer.
    pub(crate) payload_bytes: usize,
}

impl Agreed {
    /// Room for any request that is read from the device.
    pub(crate) fn buffer_bytes(&self) -> usize {
        self.payload_bytes.max(READ_BUFFER_BYTES_MIN) + BEFORE_DATA_BYTES
    }
}

/// Answers INIT. With `uring` requests come over io_uring if the kernel offers it.
pub(crate) fn shake_hands<F: Filesystem>(
    files: &mut F,
    device: &Device,
    uring: bool,
) -> io::Result<Agreed> {
    let mut buffer = vec![0; 2 * READ_BUFFER_BYTES_MIN];
    loop {
        let Taken::Request(bytes) = device.take(&mut buffer)? else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        let unclear = || io::Error::new(io::ErrorKind::InvalidData, "not a request to begin with");
        let message = Message::read(&buffer[..bytes]).ok_or_else(unclear)?;
        let (unique, opcode) = (message.header.unique, message.opcode());
        let body = &buffer[size_of::<abi::InHeader>()..bytes];
        let init = read_init(body).filter(|_| opcode == Some(Opcode::Init));
        let init = init.ok_or_else(unclear)?;
        if init.major > abi::MAJOR {
            // The kernel asks again, with this version.
            let ours = [abi::MAJOR, abi::MINOR];
            device.send(unique, 0, &[ours.as_bytes()])?;
            continue;
        }
        let refuse = |error: io::Error, code: i32| {
            let _ = device.send(unique, -code, &[]);
            Err(error)
        };
        if init.major < abi::MAJOR || init.minor < abi::MINOR_LEAST {
            let text = format!("the kernel speaks FUSE {}.{}", init.major, init.minor);
            let error = io::Error::new(io::ErrorKind::Unsupported, text);
            return refuse(error, libc::EPROTO);
        }
        let mut config = Config::new(offered(&init));
        if let Err(error) = files.init(&mut config) {
            let code = error.raw_os_error().unwrap_or(libc::EIO);
            return refuse(error, code);
        }
        let is_over_io_uring = uring && config.want(InitFlags::OVER_IO_URING);
        device.send(unique, 0, &[answer(&init, &config).as_bytes()])?;
        return Ok(Agreed {
            is_over_io_uring,
            payload_bytes: config.max_write_bytes as usize,
        });
    }
}

fn read_init(body: &[u8]) -> Option<abi::InitIn> {
    if let Ok((init, _)) = abi::InitIn::read_from_prefix(body) {
        return Some(init);
    }
    let (short, _) = abi::InitInShort::read_from_prefix(body).ok()?;
    Some(abi::InitIn {
        major: short.major,
        minor: short.minor,
        max_readahead: short.max_readahead,
        flags: short.flags,
        ..abi::InitIn::default()
    })
}

fn offered(init: &abi::InitIn) -> InitFlags {
    let low = InitFlags::from_bits_retain(u64::from(init.flags));
    match low.contains(InitFlags::INIT_EXT) {
        true => low | InitFlags::from_bits_retain(u64::from(init.flags2) << 32),
        false => low,
    }
}

fn answer(init: &abi::InitIn, config: &Config) -> abi::InitOut {
    let flags = (config.wanted | InitFlags::INIT_EXT) & config.offered;
    abi::InitOut {
        major: abi::MAJOR,
        minor: abi::MINOR,
        max_readahead: init.max_readahead,
        flags: flags.bits() as u32,
        max_background: config.max_background,
        congestion_threshold: config.max_background / 4 * 3,
        max_write: config.max_write_bytes,
        time_gran: 1,
        // The field is as wide as the largest limit that a kernel can have.
        max_pages: config
            .max_write_bytes
            .div_ceil(PAGE_BYTES)
            .min(u32::from(u16::MAX)) as u16,
        flags2: (flags.bits() >> 32) as u32,
        max_stack_depth: config.max_stack_depth,
        ..abi::InitOut::default()
    }
}
