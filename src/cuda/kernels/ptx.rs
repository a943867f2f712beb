// SPDX-License-Identifier: MPL-2.0
//! Decodes the names in the embedded PTX. Names take three quarters of the bytes of PTX. So `by_recency` in
//! scripts/build_kernels.py replaces the number of a register or label by the number of other names of its kind that were used
//! since its last use. A name that is used for the first time gets no number.

/// The kinds of names with numbers. Each kind is numbered separately.
const KINDS: [&[u8]; 7] = [b"%r", b"%rd", b"%rs", b"%p", b"%f", b"%fd", b"$L__BB"];

/// The text at the begin of a kernel. Numbers start again in each kernel.
const KERNEL: &[u8] = b".visible ";

/// Returns the PTX with numbers, which each kernel assigns in the order of the first use. `None` if a code refers to a name that
/// does not exist.
pub fn with_names(coded: &[u8]) -> Option<Vec<u8>> {
    let mut ptx = Vec::with_capacity(2 * coded.len());
    // For each kind, the numbers that have been used. The most recently used number is the last.
    let mut recent: [Vec<usize>; KINDS.len()] = Default::default();
    let mut rest = coded;
    while let Some(begin) = rest.iter().position(|byte| b"%$.".contains(byte)) {
        ptx.extend(&rest[..begin]);
        rest = &rest[begin..];
        if rest.starts_with(KERNEL) {
            recent.iter_mut().for_each(Vec::clear);
        }
        let is_letter = |byte: &u8| byte.is_ascii_alphabetic() || *byte == b'_';
        let letters = 1 + rest[1..].iter().position(|byte| !is_letter(byte)).unwrap_or(rest.len() - 1);
        let (name, behind) = rest.split_at(letters);
        ptx.extend(name);
        rest = behind;
        // In a declaration of registers, a count in angle brackets follows the name. It has no number.
        let kind = KINDS.iter().position(|kind| *kind == name).filter(|_| !rest.starts_with(b"<"));
        if let Some(kind) = kind {
            let digits = rest.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(rest.len());
            let (rank, behind) = rest.split_at(digits);
            rest = behind;
            let numbers = &mut recent[kind];
            let number = if rank.is_empty() {
                numbers.len()
            } else {
                let rank: usize = std::str::from_utf8(rank).ok()?.parse().ok()?;
                numbers.remove(numbers.len().checked_sub(rank)?.checked_sub(1)?)
            };
            numbers.push(number);
            ptx.extend(number.to_string().as_bytes());
        }
    }
    ptx.extend(rest);
    Some(ptx)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_numbered_by_their_first_use() {
        let coded = b"\n.visible .entry a(\n.reg .b32 %r<9>;\nmov.u32 %r, %tid.x;\nadd.s32 %r, %r1, %r0;\n$L__BB:\n\
            ld.u32 %r, [%rd+4];\nsub.s32 %r2, %r2, %r;\n@%p bra $L__BB0;\n}\n.visible .entry b(\nst.u32 [%rd], %r;\n";
        let ptx = b"\n.visible .entry a(\n.reg .b32 %r<9>;\nmov.u32 %r0, %tid.x;\nadd.s32 %r1, %r0, %r0;\n$L__BB0:\n\
            ld.u32 %r2, [%rd0+4];\nsub.s32 %r1, %r0, %r3;\n@%p0 bra $L__BB0;\n}\n.visible .entry b(\nst.u32 [%rd0], %r0;\n";
        assert_eq!(with_names(coded).map(String::from_utf8), Some(Ok(String::from_utf8_lossy(ptx).into())));
    }

    #[test]
    fn a_name_that_was_not_used_is_an_error() {
        for coded in [&b"%r0"[..], b"%r %r1", b"%r .visible %r0", b"%r %r99999999999999999999999"] {
            assert_eq!(with_names(coded), None);
        }
        assert_eq!(with_names(b"%r"), Some(b"%r0".to_vec()));
    }
}
