//! What devices have and can do without, as rows of one table: speed changes, results do not.

/// What is not used although the device has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FeaturesOff {
    /// CUDA: launches that begin before those before them have ended.
    pub dependent_launches: bool,
    /// GPUs: greedy tokens that are picked on the device, several steps without the host.
    pub device_picks: bool,
    /// What `unisonic tune` measured: whoever opens a device reads it from a cache, or does not.
    pub tuning_table: bool,
    /// CUDA: weights that are asked for beyond those that registers hold, before the launches before have ended.
    pub prefetch: bool,
}

/// One row of the table.
pub struct Feature {
    /// As in options.
    pub name: &'static str,
    /// One line for people.
    pub doc: &'static str,
    /// Its switch.
    switch: fn(&mut FeaturesOff) -> &mut bool,
}

/// All features.
pub const FEATURES: &[Feature] = &[
    Feature {
        name: "dependent-launches",
        doc: "CUDA: a launch begins, and asks for weights, before the one before it has ended",
        switch: |off| &mut off.dependent_launches,
    },
    Feature {
        name: "device-picks",
        doc: "GPUs: where nobody looks at logits, the device picks greedy tokens, several before the host sees one",
        switch: |off| &mut off.device_picks,
    },
    Feature {
        name: "tuning-table",
        doc: "GPUs: kernels have the forms that `unisonic tune` found to be fast",
        switch: |off| &mut off.tuning_table,
    },
    Feature {
        name: "prefetch",
        doc: "CUDA: such a launch asks for more weights than its registers hold",
        switch: |off| &mut off.prefetch,
    },
];

/// A name that no feature has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no feature `{name}`; expected one of {known}")]
pub struct UnknownFeature {
    name: String,
    known: String,
}

impl FeaturesOff {
    /// Those of these names.
    pub fn named(names: &[String]) -> Result<Self, UnknownFeature> {
        let mut off = Self::default();
        for name in names {
            let feature = FEATURES.iter().find(|feature| feature.name == name);
            let feature = feature.ok_or_else(|| UnknownFeature {
                name: name.clone(),
                known: FEATURES.iter().map(|feature| feature.name).collect::<Vec<_>>().join(", "),
            })?;
            *(feature.switch)(&mut off) = true;
        }
        Ok(off)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_switched_off_by_name() {
        assert_eq!(FeaturesOff::named(&[]), Ok(FeaturesOff::default()));
        for feature in FEATURES {
            let off = FeaturesOff::named(&[feature.name.to_owned()]);
            assert!(off.is_ok_and(|off| off != FeaturesOff::default()), "{}", feature.name);
        }
        let error = FeaturesOff::named(&["magic".to_owned()]).map_err(|error| error.to_string());
        assert_eq!(
            error,
            Err(
                "there is no feature `magic`; expected one of dependent-launches, device-picks, tuning-table, prefetch"
                    .to_owned()
            )
        );
    }
}
