//! Finds the circles of a graph: its strongly connected components.

use std::collections::{BTreeMap, BTreeSet};

/// The sets of two or more nodes that all reach each other, largest first.
pub fn circles<N: Ord + Clone>(edges: &BTreeMap<N, BTreeSet<N>>) -> Vec<BTreeSet<N>> {
    let reached: BTreeMap<&N, BTreeSet<&N>> = edges.keys().map(|node| (node, reach(edges, node))).collect();
    let mut found: Vec<BTreeSet<N>> = Vec::new();
    for (node, there) in &reached {
        if found.iter().any(|circle| circle.contains(node)) {
            continue;
        }
        let back = |other: &&&N| reached.get(*other).is_some_and(|its| its.contains(node));
        let mut circle: BTreeSet<N> = there.iter().filter(back).map(|other| (*other).clone()).collect();
        circle.insert((*node).clone());
        if circle.len() > 1 {
            found.push(circle);
        }
    }
    found.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    found
}

/// All nodes that can be reached from a node over one or more edges.
fn reach<'a, N: Ord>(edges: &'a BTreeMap<N, BTreeSet<N>>, from: &'a N) -> BTreeSet<&'a N> {
    let mut reached = BTreeSet::new();
    let mut next = vec![from];
    while let Some(node) = next.pop() {
        for other in edges.get(node).into_iter().flatten() {
            if reached.insert(other) {
                next.push(other);
            }
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(edges: &[(u8, &[u8])]) -> Vec<Vec<u8>> {
        let edges = edges.iter().map(|(from, to)| (*from, to.iter().copied().collect())).collect();
        circles(&edges).into_iter().map(|circle| circle.into_iter().collect()).collect()
    }

    #[test]
    fn a_tree_has_none() {
        assert_eq!(found(&[(1, &[2, 3]), (2, &[3]), (3, &[])]), [[0u8; 0]; 0]);
        assert_eq!(found(&[(1, &[1])]), [[0u8; 0]; 0]);
    }

    #[test]
    fn circles_are_found_whole_and_apart() {
        let edges: &[(u8, &[u8])] =
            &[(1, &[2]), (2, &[3]), (3, &[1, 4]), (4, &[5]), (5, &[4]), (6, &[1]), (7, &[])];
        assert_eq!(found(edges), [vec![1, 2, 3], vec![4, 5]]);
    }

    #[test]
    fn circles_that_share_a_node_are_one() {
        assert_eq!(found(&[(1, &[2, 3]), (2, &[1]), (3, &[1])]), [vec![1, 2, 3]]);
    }
}
