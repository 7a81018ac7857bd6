//! Tables that are looked into for every record.

/// A table whose hash is quick, and seeded anew in each process: no trace can be made so that its keys collide.
pub(crate) type Map<K, V> = std::collections::HashMap<K, V, foldhash::fast::RandomState>;

/// A set of the same kind.
pub(crate) type Set<K> = std::collections::HashSet<K, foldhash::fast::RandomState>;
