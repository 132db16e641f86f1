//! What a process has mapped into its program's memory.

use super::super::accounts::Goods;
use super::super::reading::Reader;
use super::{Answer, Held, Session, failed};
use ::direct::protocol::{Refusal, Reply};
use std::sync::Arc;
use txn::Store;

impl<S: Store> Session<S> {
    /// The process is going to map blocks of a file that it reads.
    pub(super) fn mapping(&mut self, file: u32) -> Answer {
        let Some(Held::Reading(reader, ..)) = self.attached.get(&file) else {
            return Err(Refusal::Ended);
        };
        // What his processes keep of freed blocks is in nobody's quota.
        if !self.process.account.is_within(Goods::SeenBlocks) {
            return Err(Refusal::NoRoom);
        }
        let slot = match reader.mappers.slot_of(&self.process) {
            Some(slot) => slot,
            None => {
                let slot = self.free_slots.pop().ok_or(Refusal::NoRoom)?;
                reader.mappers.add(&self.process, slot);
                slot
            }
        };
        // Who has ended it meanwhile may not have seen this one; the process looks as well, before it maps.
        if !reader.is_live() {
            return Err(Refusal::Ended);
        }
        let socket = self.process.caller.open().map_err(failed)?;
        Ok((Reply::of(&[slot as u64]), socket.into_iter().collect()))
    }

    /// Whether what the process had not given back in time is given back now.
    pub(super) fn look_at_mappings(&mut self) {
        let process = &self.process;
        for held in self.attached.values() {
            if let Held::Reading(reader, ..) = held {
                reader.is_seen();
            }
        }
        let mut free = Vec::new();
        self.not_given_back.retain(|reader| {
            let slot = reader.mappers.remove(process);
            free.extend(slot);
            reader.is_seen();
            slot.is_none()
        });
        self.free_slots.append(&mut free);
    }

    /// The process lets a file go: if it is honest, it has given back what it had mapped of it.
    pub(super) fn give_up_mappings(&mut self, reader: &Arc<Reader>) {
        if reader.mappers.slot_of(&self.process).is_none() {
            return;
        }
        let mut slot = reader.mappers.remove(&self.process);
        if slot.is_none() {
            reader.end();
            slot = reader.mappers.remove(&self.process);
        }
        match slot {
            Some(slot) => self.free_slots.push(slot),
            None => self.not_given_back.push(Arc::clone(reader)),
        }
        // It may have been the last one that saw the blocks, and others may keep the attachment.
        reader.is_seen();
    }
}
