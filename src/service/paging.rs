//! Pages of lists.

/// The offset of the next page of a list, if there is one.
pub(crate) fn next_offset(offset: usize, limit: usize, total: usize) -> Option<usize> {
    Some(offset.saturating_add(limit)).filter(|next| *next < total)
}
