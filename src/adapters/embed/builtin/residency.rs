//! Gives the memory of compiled-in weights back to the operating system.
//!
//! Indexing reads nearly all weights once: the vectors of the words and twelve layers. Messages need the layers and a few words. The
//! weights are part of the program file, so the operating system reads a page again when it is needed.
#![expect(unsafe_code, reason = "madvise has no safe interface")]

/// Gives back the pages of `weights`. Contents don't change, and concurrent reads wait for the page at most.
pub(super) fn release(weights: &'static [u8]) {
    #[cfg(target_os = "linux")]
    {
        /// A multiple of all usual page sizes.
        const PAGE: usize = 64 << 10;
        let range = weights.as_ptr_range();
        let start = (range.start as usize).next_multiple_of(PAGE);
        let end = range.end as usize / PAGE * PAGE;
        if start < end {
            let first = weights.as_ptr().wrapping_add(start - range.start as usize);
            // SAFETY: the range is inside a `static` without interior mutability. Nothing has ever written to these pages, because
            // they are mapped read-only. So they are private pages of the program file that equal the file, and the operating system
            // reads them again on the next access. The weights contain no addresses that a loader would have changed.
            // An error means that the pages stay in memory, which is harmless.
            let _ = unsafe { libc::madvise(first.cast_mut().cast(), end - start, libc::MADV_DONTNEED) };
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = weights;
}
