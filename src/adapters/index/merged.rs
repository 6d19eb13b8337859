//! Merges the candidate lists of all texts of a search, by point.

/// The position of a document in the index, with its score.
pub(super) type Scored = (usize, f32);

/// The scores of every point that occurs in a list, one row per point.
pub(super) struct Merged {
    texts: usize,
    /// For each point of the index, its row or [`NO_ROW`].
    row_of: Vec<u32>,
    /// The point of each row.
    points: Vec<usize>,
    /// A matrix in row-major order: one row per point, one column per text.
    dense: Vec<Option<f32>>,
    lexical: Vec<f32>,
}

const NO_ROW: u32 = u32::MAX;

impl Merged {
    pub(super) fn new(texts: usize, points: usize, expected: usize) -> Self {
        Self {
            texts,
            row_of: vec![NO_ROW; points],
            points: Vec::with_capacity(expected),
            dense: Vec::with_capacity(expected * texts),
            lexical: Vec::with_capacity(expected * texts),
        }
    }

    /// The offset of a point's scores; `None` if the point is out of range.
    fn row(&mut self, point: usize) -> Option<usize> {
        let row = self.row_of.get_mut(point)?;
        if *row == NO_ROW {
            *row = u32::try_from(self.points.len()).ok()?;
            self.points.push(point);
            self.dense.resize(self.dense.len() + self.texts, None);
            self.lexical.resize(self.lexical.len() + self.texts, 0.0);
        }
        Some(*row as usize * self.texts)
    }

    pub(super) fn add_dense(&mut self, text: usize, scores: Vec<Scored>) {
        for (point, score) in scores {
            if let Some(row) = self.row(point) {
                self.dense[row + text] = Some(score);
            }
        }
    }

    pub(super) fn add_lexical(&mut self, text: usize, scores: Vec<Scored>) {
        for (point, score) in scores {
            if let Some(row) = self.row(point) {
                self.lexical[row + text] = score;
            }
        }
    }

    /// The embedded points that have no cosine for this text yet.
    pub(super) fn without_dense(&self, text: usize, embedded: impl Fn(usize) -> bool) -> Vec<usize> {
        let cosines = self.dense.iter().skip(text).step_by(self.texts);
        self.points.iter().zip(cosines).filter(|(point, cosine)| cosine.is_none() && embedded(**point)).map(|(point, _)| *point).collect()
    }

    /// All points with their dense and lexical scores, one of each per text.
    pub(super) fn rows(&self) -> impl Iterator<Item = (usize, &[Option<f32>], &[f32])> {
        let scores = self.dense.chunks_exact(self.texts).zip(self.lexical.chunks_exact(self.texts));
        self.points.iter().zip(scores).map(|(point, (dense, lexical))| (*point, dense, lexical))
    }
}
