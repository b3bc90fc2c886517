//! Shapes of real models; `samples` has the arithmetic.

use unisonic_core::kir::verify;
use unisonic_core::planes::activation::ActivationLayout;
use unisonic_core::planes::weight::{WeightFormat, WeightLayout};

use super::*;

/// The tunings that are used pass the verifier, shared memory included, for shapes of real models.
#[test]
fn kernels_of_real_shapes_verify() {
    let epilogue = Epilogue { bias: true, add: None, checks_range: true };
    for format in WeightFormat::ALL {
        for (n, width) in [(3584, 18944), (576, 1536), (152_064, 896), (8192, 28672)] {
            let Ok(layout) = WeightLayout::new(format, n, width) else { continue };
            for rows in [1, 2, 4, 16, 64] {
                let x = ActivationLayout::new(rows, width).unwrap();
                let linear = split_k(layout, x, epilogue, SplitK::new(layout, x));
                assert_eq!(verify(&linear.kernel), [], "{layout:?}, {rows} rows");
            }
            let x = ActivationLayout::new(512, width).unwrap();
            let tuning = Tiled::new(layout, x);
            let linear = tiled(layout, x, epilogue, tuning);
            assert_eq!(verify(&linear.kernel), [], "{layout:?}, {tuning:?}");
        }
    }
}
