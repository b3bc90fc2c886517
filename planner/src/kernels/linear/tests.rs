//! Shapes of real models; `samples` has the arithmetic.

use unisonic_core::format::blocks::BlockFormat;
use unisonic_core::kir::legal::{Caps, legalize};
use unisonic_core::kir::verify;
use unisonic_core::launch::Hardware;
use unisonic_core::planes::activation::ActivationLayout;
use unisonic_core::planes::weight::{WeightFormat, WeightLayout};

use super::super::fit::misfit;
use super::super::fit::tests::devices;
use super::*;

/// The tunings that are used fit every device, for shapes of real models and every format.
#[test]
fn kernels_of_real_shapes_fit_every_device() {
    let epilogue = Epilogue { bias: true, add: None, checks_range: true };
    let devices = devices();
    let shapes = [(3584, 18944), (576, 1536), (152_064, 896), (8192, 28672)];
    // Devices take turns.
    let mut turn = 0;
    for format in WeightFormat::ALL {
        for (n, width) in shapes {
            let Ok(layout) = WeightLayout::new(format, n, width) else { continue };
            for rows in [1, 2, 4, 8, 16, 32, 64, 512] {
                let x = ActivationLayout::new(rows, width).unwrap();
                for hardware in [Hardware::LEAST, devices[turn % devices.len()]] {
                    let legal = legalize(&linear(layout, x, epilogue, &hardware).kernel, &hardware.caps);
                    assert_eq!(verify(&legal), [], "{layout:?}, {rows} rows, {hardware:?}");
                    assert_eq!(misfit(&legal, &hardware), None, "{layout:?}, {rows} rows, {hardware:?}");
                }
                turn += 1;
            }
        }
    }
}

/// What a device has decides.
#[test]
fn devices_get_the_form_that_suits_them() {
    let layout = WeightLayout::new(WeightFormat::Block(BlockFormat::Q4_K), 3584, 3584).unwrap();
    let name = |rows: usize, hardware: Hardware| {
        let x = ActivationLayout::new(rows, 3584).unwrap();
        linear(layout, x, Epilogue::default(), &hardware).kernel.name
    };
    let sm_86 = Hardware::SM_86;
    assert_eq!([31, 32].map(|rows| name(rows, sm_86)), ["linear_split_k", "linear_tiled"]);
    let vulkan = Hardware::COOPERATIVE;
    assert_eq!([31, 32].map(|rows| name(rows, vulkan)), ["linear_split_k", "linear_half_staged"]);
    let small = Hardware { shared_len_bytes: 16 * 1024, ..sm_86 };
    let no_matrices = Hardware { caps: Caps { mma32: false, ..Caps::ALL }, ..sm_86 };
    let names = [small, no_matrices].map(|hardware| name(512, hardware));
    assert_eq!(names, ["linear_half_staged", "linear_split_k"]);
    let x = ActivationLayout::new(16, 3584).unwrap();
    let tuning = SplitK::new(layout, x, &sm_86);
    assert_eq!((tuning.form, tuning.clusters, tuning.tiles), (Form::Matrix, 7, 4));
    let form = |rows: usize| SplitK::new(layout, ActivationLayout::new(rows, 3584).unwrap(), &vulkan).form;
    assert_eq!([1, 2].map(form), [Form::Dot4, Form::Matrix]);
    let wide = Hardware { caps: Caps { subgroup: 128, ..Caps::NONE }, ..Hardware::LEAST };
    let tuning = SplitK::new(layout, x, &wide);
    assert_eq!((tuning.form, tuning.clusters, tuning.tiles), (Form::Dot4, 8, 2));
}
