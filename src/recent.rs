// SPDX-License-Identifier: MPL-2.0
//! A cache of the most recently used values.

use std::convert::Infallible;

/// Keys and values, ordered by their last use: the most recently used pair is the last one.
pub struct Recent<K, V>(Vec<(K, V)>);

impl<K, V> Default for Recent<K, V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K, V> Recent<K, V> {
    /// Returns the value for whose key `is_same` is true. If there is none, adds the key and the value that `make` returns.
    /// `capacity` is called with the new value and returns how many values the cache may hold, including the new one. The least
    /// recently used values are dropped.
    pub fn get_or_try_make<E>(
        &mut self,
        is_same: impl Fn(&K, &V) -> bool,
        make: impl FnOnce() -> Result<(K, V), E>,
        capacity: impl FnOnce(&V) -> usize,
    ) -> Result<&mut V, E> {
        let entry = match self.0.iter().rposition(|(key, value)| is_same(key, value)) {
            Some(index) => self.0.remove(index),
            None => {
                let made = make()?;
                self.0.drain(..(self.0.len() + 1).saturating_sub(capacity(&made.1).max(1)));
                made
            }
        };
        self.0.push(entry);
        let last = self.0.len() - 1;
        Ok(&mut self.0[last].1)
    }

    /// [`Self::get_or_try_make`] with a fixed capacity and a `make` that cannot fail.
    pub fn get_or_make(
        &mut self,
        is_same: impl Fn(&K, &V) -> bool,
        make: impl FnOnce() -> (K, V),
        capacity: usize,
    ) -> &mut V {
        let Ok(value) = self.get_or_try_make(is_same, || Ok::<_, Infallible>(make()), |_| capacity);
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_value_is_dropped() {
        let mut cache = Recent::<u32, String>::default();
        let mut made = Vec::new();
        for key in [1, 2, 1, 3, 2, 1] {
            let make = || {
                made.push(key);
                (key, key.to_string())
            };
            assert_eq!(*cache.get_or_make(|known, _| *known == key, make, 2), key.to_string());
        }
        assert_eq!(made, [1, 2, 3, 2, 1]);
        assert_eq!(cache.get_or_try_make(|_, _| false, || Err::<(u32, String), _>("failed"), |_| 2), Err("failed"));
        assert_eq!(cache.0.len(), 2, "a failure drops nothing");
        // A value whose capacity is 0 drops all other values.
        cache.get_or_try_make(|_, _| false, || Ok::<_, ()>((9, String::new())), |_| 0).unwrap();
        assert_eq!(cache.0.len(), 1);
    }
}
