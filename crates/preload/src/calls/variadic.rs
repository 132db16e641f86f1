//! Functions with any number of arguments that cannot be passed on from Rust: everything is kept as it is, the table is told, and the real function goes on with the same stack.

use crate::table::TABLE;
use crate::{process, real::Next};
use libc::{c_int, c_void};
use std::arch::naked_asm;

macro_rules! variadic {
    ($($name:ident, $before:ident, $symbol:literal, |$first:ident| $told:expr;)*) => {$(
        extern "C" fn $before($first: c_int) -> *mut c_void {
            static NEXT: Next = Next::new($symbol);
            $told;
            NEXT.address()
        }

        // SAFETY: the C library exports the name; whatever arguments there are stay where they are for the function behind, which this ends in.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C-unwind" fn $name() {
            // All registers that carry arguments, which leaves the stack aligned.
            naked_asm!(
                "push rdi", "push rsi", "push rdx", "push rcx", "push r8", "push r9", "push rax",
                "sub rsp, 128",
                "movups [rsp], xmm0", "movups [rsp + 16], xmm1", "movups [rsp + 32], xmm2", "movups [rsp + 48], xmm3",
                "movups [rsp + 64], xmm4", "movups [rsp + 80], xmm5", "movups [rsp + 96], xmm6", "movups [rsp + 112], xmm7",
                "call {before}",
                "mov r11, rax",
                "movups xmm0, [rsp]", "movups xmm1, [rsp + 16]", "movups xmm2, [rsp + 32]", "movups xmm3, [rsp + 48]",
                "movups xmm4, [rsp + 64]", "movups xmm5, [rsp + 80]", "movups xmm6, [rsp + 96]", "movups xmm7, [rsp + 112]",
                "add rsp, 128",
                "pop rax", "pop r9", "pop r8", "pop rcx", "pop rdx", "pop rsi", "pop rdi",
                "jmp r11",
                before = sym $before,
            )
        }
    )*};
}

variadic! {
    execl, before_execl, c"execl", |_first| process::share_all();
    execlp, before_execlp, c"execlp", |_first| process::share_all();
    execle, before_execle, c"execle", |_first| process::share_all();
    dprintf, before_dprintf, c"dprintf", |number| TABLE.share(number);
    __dprintf_chk, before_dprintf_chk, c"__dprintf_chk", |number| TABLE.share(number);
}
