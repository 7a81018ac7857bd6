//! The armed sites of an address space, by address.
//!
//! An arming copied from another process ([`Copied`]) may have hundreds of thousands of sites, of
//! which hardly any is asked for: each is created on request. When one of them is to be changed,
//! all sites of its module become the space's own.

use std::collections::BTreeMap;
use std::ops::Range;

use elsa::FrozenMap;

use crate::change::Change;
use crate::jump::Copied;
use crate::ledger::EnteredList;
use crate::module_key::ModuleKey;
use crate::site::{Armed, LONGEST};
use crate::site_use::{FAR, Use};

/// All armed sites of an address space.
#[derive(Debug, Default)]
pub(crate) struct Sites {
    own: BTreeMap<u64, Armed>,
    copies: Vec<Copy>,
    /// Ledger entries of copied sites that have become the space's own. Restoring bytes that are
    /// restored already changes nothing, so the entries may stay as long as the module is mapped.
    entered: Vec<(ModuleKey, EnteredList)>,
}

/// The sites of one copied arming.
struct Copy {
    copied: Copied,
    made: FrozenMap<u64, Box<Armed>>,
    entered: Option<EnteredList>,
}

impl std::fmt::Debug for Copy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Copy {{ {:?} }}", self.copied)
    }
}

impl Copy {
    fn get(&self, address: u64) -> Option<&Armed> {
        if let Some(made) = self.made.get(&address) {
            return Some(made);
        }
        let (site, jump) = self.copied.site(address)?;
        Some(self.made.insert(address, Box::new(Armed::with_others(site, jump))))
    }

    /// Converts all of its sites to own ones; returns its ledger entry too.
    fn into_own(self) -> (impl Iterator<Item = (u64, Armed)>, ModuleKey, Option<EnteredList>) {
        let Copy { copied, made, entered } = self;
        let (module, mut made) = (copied.module(), made.into_map());
        let addresses: Vec<u64> = copied.sites_in(0..u64::MAX).collect();
        let all = addresses.into_iter().filter_map(move |address| {
            let armed = made.remove(&address).map(|armed| *armed).or_else(|| {
                let (site, jump) = copied.site(address)?;
                Some(Armed::with_others(site, jump))
            });
            Some((address, armed?))
        });
        (all, module, entered)
    }
}

impl Sites {
    /// None.
    pub(crate) fn new() -> Sites {
        Sites::default()
    }

    /// The site at an address.
    pub(crate) fn get(&self, address: &u64) -> Option<&Armed> {
        let own = self.own.get(address);
        own.or_else(|| self.copies.iter().find_map(|copy| copy.get(*address)))
    }

    /// The site at an address, mutable.
    pub(crate) fn get_mut(&mut self, address: &u64) -> Option<&mut Armed> {
        self.own_site(*address);
        self.own.get_mut(address)
    }

    /// Whether there is a site at an address.
    pub(crate) fn contains_key(&self, address: &u64) -> bool {
        self.own.contains_key(address) || self.copies.iter().any(|copy| copy.copied.has_site(*address))
    }

    /// Adds a site.
    pub(crate) fn insert(&mut self, address: u64, armed: Armed) -> Option<Armed> {
        self.own_site(address);
        self.own.insert(address, armed)
    }

    /// Removes a site.
    pub(crate) fn remove(&mut self, address: &u64) -> Option<Armed> {
        self.own_site(*address);
        self.own.remove(address)
    }

    /// Adds many sites.
    pub(crate) fn append(&mut self, armed: &mut BTreeMap<u64, Armed>) {
        self.make_own(|copied| armed.keys().any(|&address| copied.has_site(address)));
        self.own.append(armed);
    }

    /// Adds the sites of a copied arming, with its ledger entry.
    pub(crate) fn add_copy(&mut self, copied: Copied, entered: Option<EnteredList>) {
        self.copies.push(Copy { copied, made: FrozenMap::new(), entered });
    }

    /// The copied armings.
    pub(crate) fn copies(&self) -> impl Iterator<Item = &Copied> {
        self.copies.iter().map(|copy| &copy.copied)
    }

    /// Makes the sites of some copied armings the space's own.
    pub(crate) fn make_own(&mut self, which: impl Fn(&Copied) -> bool) {
        if self.copies.is_empty() {
            return;
        }
        for copy in self.copies.extract_if(.., |copy| which(&copy.copied)) {
            let (all, module, entered) = copy.into_own();
            self.own.extend(all);
            self.entered.extend(entered.map(|entered| (module, entered)));
        }
    }

    fn own_site(&mut self, address: u64) {
        self.make_own(|copied| copied.has_site(address));
    }

    /// Drops the ledger entries of unmapped modules, which have no sites left.
    pub(crate) fn retain_modules(&mut self, is_there: impl Fn(&ModuleKey) -> bool) {
        self.entered.retain(|(module, _)| is_there(module));
    }

    /// The sites that are not part of a copied arming: all traps are among them.
    pub(crate) fn own(&self) -> impl DoubleEndedIterator<Item = (&u64, &Armed)> {
        self.own.iter()
    }

    /// The sites that are not part of a copied arming, mutable.
    pub(crate) fn own_mut(&mut self) -> impl Iterator<Item = (&u64, &mut Armed)> {
        self.own.iter_mut()
    }

    /// Removes all sites.
    pub(crate) fn take_all(&mut self) -> BTreeMap<u64, Armed> {
        self.make_own(|_| true);
        self.entered.clear();
        std::mem::take(&mut self.own)
    }

    /// The sites in a range.
    fn within(&self, addresses: Range<u64>) -> impl Iterator<Item = &Armed> {
        let own = self.own.range(addresses.clone()).map(|(_, armed)| armed);
        let copied = move |copy: &'_ Copy| -> Vec<u64> { copy.copied.sites_in(addresses.clone()).collect() };
        let copied = self
            .copies
            .iter()
            .flat_map(move |copy| copied(copy).into_iter().filter_map(move |address| copy.get(address)));
        own.chain(copied)
    }

    /// The addresses of the sites in a range that trap, ascending.
    pub(crate) fn traps_in(&self, code: Range<u64>) -> impl Iterator<Item = u64> {
        self.own.range(code).filter(|(_, armed)| armed.jump().is_none()).map(|(&address, _)| address)
    }

    /// Whether a probe is at one of them.
    pub(crate) fn any_is_probed(&self) -> bool {
        !self.copies.is_empty() || self.own.values().any(|armed| armed.site().is_probed())
    }

    /// Whether one of them is a jump.
    pub(crate) fn any_is_jump(&self) -> bool {
        !self.copies.is_empty() || self.own.values().any(|armed| armed.jump().is_some())
    }

    /// Calls `show` with each use of each site.
    pub(crate) fn each_use(&self, mut show: impl FnMut(&Use)) {
        self.own.values().for_each(|armed| armed.site().uses.iter().for_each(&mut show));
        self.copies.iter().for_each(|copy| copy.copied.each_use(&mut show));
    }

    /// Calls `show` with each change made for a site.
    pub(crate) fn each_change(&self, mut show: impl FnMut(&Change)) {
        self.own.values().for_each(|armed| armed.each_change(&mut show));
        self.copies.iter().for_each(|copy| copy.copied.each_change(0..u64::MAX, &mut show));
    }

    /// Calls `show` with the changes of all sites near a range; they include all changes in it.
    pub(crate) fn each_change_near(&self, addresses: Range<u64>, mut show: impl FnMut(&Change)) {
        let near = addresses.start.saturating_sub(FAR)..addresses.end.saturating_add(FAR);
        self.own.range(near.clone()).for_each(|(_, armed)| armed.each_change(&mut show));
        self.copies.iter().for_each(|copy| copy.copied.each_change(near.clone(), &mut show));
    }

    /// Replaces bytes changed for sites by the program's in `bytes`, which were read at `address`.
    pub(crate) fn hide(&self, address: u64, bytes: &mut [u8]) {
        let end = address.saturating_add(bytes.len() as u64);
        self.each_change_near(address..end, |change| change.hide(address, bytes));
    }

    /// Whether the instruction at an address is covered by a site's jump and executed only in its
    /// trampoline.
    pub(crate) fn is_covered(&self, address: u64) -> bool {
        let mut jumps = self.within(address.saturating_sub(LONGEST as u64)..address).filter_map(Armed::jump);
        jumps.any(|jump| jump.shape.followers.iter().any(|&(follower, _)| follower == address))
    }
}

impl FromIterator<(u64, Armed)> for Sites {
    fn from_iter<I: IntoIterator<Item = (u64, Armed)>>(sites: I) -> Sites {
        Sites { own: sites.into_iter().collect(), ..Sites::default() }
    }
}
