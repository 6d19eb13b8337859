//! Decides which results of a search are weak.
//!
//! A search fills its limit, so its last results may have nothing to do with the queries. A fused score can't show that, because it
//! is normalised over the candidates. The cosine can: a result is weak if its best cosine with any query is below a floor. The floor is
//! higher for a query that probably needs no tool: the gate also sees the query's own vector, and so recognises small talk and nonsense
//! better than any cosine with a tool. Common words decide only where there is no cosine, because nearly every query shares a word with
//! some tool.
//!
//! `benches/weak_results.py` shows the shares of weak results for a range of floors.

use super::fusion::Ranked;

/// The floor for the built-in model.
///
/// Measured on the first ten results among 598 tools, for 160 messages and 128 short queries in English, none of which is training
/// data (`tests/cases/languages`, `tests/cases/search`). With these constants, 2 of 184 needed tools are weak. Of the other queries'
/// results, 96 % are weak for small talk, 55 % for needs that no tool meets, and 96 % for nonsense. With one floor of .36 for all queries,
/// it would be 3 of 184, and 90, 64 and 97 %.
pub(crate) const WEAK_COSINE: f32 = 0.30;
/// The floor for a query whose margin at the gate is below [`WEAK_MARGIN`].
pub(crate) const WEAK_COSINE_WITHOUT_NEED: f32 = 0.46;
/// The margin of the gate, in log-odds, below which a query probably needs no tool.
pub(crate) const WEAK_MARGIN: f32 = 2.5;

/// The floor for any other model, in standard deviations above the mean cosine between unrelated examples of the gate. With
/// all-MiniLM-L6-v2 and the same messages, 1 of 106 needed tools is weak, and 24 % of the results for small talk.
pub(crate) const WEAK_SPREADS: f32 = 1.75;

/// Whether a tool hardly matches any query. `floor` is the cosine below which a tool is weak, if cosines mean anything. A tool
/// without a cosine is weak if it shares no word with the queries.
pub fn is_weak<K>(tool: &Ranked<K>, floor: Option<f32>) -> bool {
    match tool.dense.zip(floor) {
        Some((cosine, floor)) => cosine < floor,
        None => !shares_word(tool),
    }
}

/// Whether a tool shares a word with any query, if only a synonym or a corrected word.
pub fn shares_word<K>(tool: &Ranked<K>) -> bool {
    tool.lexical > 0.0
}

#[cfg(test)]
mod tests {
    use super::super::fusion::Ranked;
    use super::{WEAK_COSINE, is_weak, shares_word};

    fn tool(dense: Option<f32>, lexical: f32) -> Ranked<u32> {
        Ranked { dense, lexical, ..Ranked::default() }
    }

    #[test]
    fn the_cosine_decides_where_there_is_one() {
        let floor = Some(WEAK_COSINE);
        assert!(is_weak(&tool(Some(WEAK_COSINE - 0.01), 9.0), floor) && !is_weak(&tool(Some(WEAK_COSINE), 0.0), floor));
        assert!(is_weak(&tool(None, 0.0), floor) && !is_weak(&tool(None, 0.1), floor));
        assert!(is_weak(&tool(Some(0.9), 0.0), None) && !is_weak(&tool(Some(0.1), 0.1), None));
    }

    #[test]
    fn a_tool_counts_by_its_best_query() {
        let mut merged = tool(Some(0.1), 0.0);
        merged.raise(&tool(Some(0.6), 0.0));
        assert!(!is_weak(&merged, Some(WEAK_COSINE)) && !shares_word(&merged));
        merged.raise(&tool(None, 2.0));
        assert!(shares_word(&merged) && merged.dense == Some(0.6));
    }
}
