//! The Merkle tree over the log (RFC 6962 §2.1), kept as its right edge only.

use std::{fmt, str::FromStr};

use super::{Hash, InvalidHash};

/// Hash of a leaf: `SHA-256(0x00 ‖ data)`.
pub fn leaf_hash(data: &[u8]) -> Hash {
    Hash::of(&[&[0], data])
}

/// Hash of an inner node: `SHA-256(0x01 ‖ left ‖ right)`.
fn node_hash(left: &Hash, right: &Hash) -> Hash {
    Hash::of(&[&[1], &left.0, &right.0])
}

/// A growing tree of which only the roots of its perfect subtrees are kept, largest first: one for each bit set in
/// `size`. Appending costs O(1) amortised, the root O(log n).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Frontier {
    size: u64,
    peaks: Vec<Hash>,
}

impl Frontier {
    /// Number of leaves.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Appends a leaf by its [`leaf_hash`].
    pub fn push(&mut self, leaf: Hash) {
        // Every trailing one bit of `size` is a peak of the height now completed.
        let mut node = leaf;
        for peak in self.peaks.drain(self.peaks.len() - self.size.trailing_ones() as usize..).rev() {
            node = node_hash(&peak, &node);
        }
        self.peaks.push(node);
        self.size += 1;
    }

    /// The tree head; of the empty tree, SHA-256 of nothing.
    pub fn root(&self) -> Hash {
        let folded = self.peaks.iter().rev().copied().reduce(|right, left| node_hash(&left, &right));
        folded.unwrap_or_else(|| Hash::of(&[]))
    }
}

/// The size, then the peaks in hex, separated by spaces; how the database keeps it.
impl fmt::Display for Frontier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.size)?;
        self.peaks.iter().try_for_each(|peak| write!(f, " {peak}"))
    }
}

/// The text is not a stored frontier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected a size and one hash for each bit set in it")]
pub struct InvalidFrontier;

impl FromStr for Frontier {
    type Err = InvalidFrontier;

    fn from_str(text: &str) -> Result<Self, InvalidFrontier> {
        let mut words = text.split(' ');
        let size: u64 = words.next().and_then(|word| word.parse().ok()).ok_or(InvalidFrontier)?;
        let peaks = words.map(str::parse).collect::<Result<Vec<_>, InvalidHash>>().map_err(|_| InvalidFrontier)?;
        if peaks.len() != size.count_ones() as usize {
            return Err(InvalidFrontier);
        }
        Ok(Self { size, peaks })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The definition of RFC 6962 §2.1, word by word.
    fn tree_head(leaves: &[Vec<u8>]) -> Hash {
        match leaves {
            [] => Hash::of(&[]),
            [leaf] => leaf_hash(leaf),
            _ => {
                let (left, right) = leaves.split_at(leaves.len().next_power_of_two() / 2);
                node_hash(&tree_head(left), &tree_head(right))
            }
        }
    }

    fn frontier(leaves: &[Vec<u8>]) -> Frontier {
        let mut frontier = Frontier::default();
        leaves.iter().for_each(|leaf| frontier.push(leaf_hash(leaf)));
        frontier
    }

    #[test]
    fn roots_match_the_certificate_transparency_vectors() {
        let leaves: [&[u8]; 8] = [
            b"",
            b"\x00",
            b"\x10",
            b"\x20\x21",
            b"\x30\x31",
            b"\x40\x41\x42\x43",
            b"\x50\x51\x52\x53\x54\x55\x56\x57",
            b"\x60\x61\x62\x63\x64\x65\x66\x67\x68\x69\x6a\x6b\x6c\x6d\x6e\x6f",
        ];
        let roots = [
            "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
            "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
            "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
            "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
            "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
            "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
            "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
            "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
        ];
        let mut frontier = Frontier::default();
        assert_eq!(frontier.root().to_string(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        for (leaf, root) in leaves.into_iter().zip(roots) {
            frontier.push(leaf_hash(leaf));
            assert_eq!(frontier.root().to_string(), root);
        }
    }

    #[test]
    fn a_stored_frontier_without_its_peaks_is_refused() {
        let text = frontier(&[vec![1], vec![2], vec![3]]).to_string();
        assert!(text.parse::<Frontier>().is_ok());
        for broken in ["", "3", "x", "-1", &text[..text.len() - 1], &text[..text.len() - 65], &format!("{text} ")] {
            assert_eq!(broken.parse::<Frontier>(), Err(InvalidFrontier), "{broken}");
        }
    }

    proptest! {
        #[test]
        fn the_frontier_agrees_with_the_definition(leaves in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..4), 0..70)) {
            let frontier = frontier(&leaves);
            prop_assert_eq!(frontier.size(), leaves.len() as u64);
            prop_assert_eq!(frontier.root(), tree_head(&leaves));
            prop_assert_eq!(frontier.to_string().parse::<Frontier>(), Ok(frontier));
        }
    }
}
