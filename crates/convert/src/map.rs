//! Hash tables for lookups at every record.

/// A table with a fast hash, seeded anew in each process: no trace can be made so that its keys
/// collide.
pub(crate) type Map<K, V> = std::collections::HashMap<K, V, foldhash::fast::RandomState>;

/// A set of the same kind.
pub(crate) type Set<K> = std::collections::HashSet<K, foldhash::fast::RandomState>;
