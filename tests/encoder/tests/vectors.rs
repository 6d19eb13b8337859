//! The vectors of all code paths on all processors are the same, bit by bit.

use toolsieve_encoder::builtin::{Encoder, Kernel};

/// The vectors of the texts below: FNV-1a over the bits of their values. A change of the model or of the arithmetic changes it.
const DIGEST: u64 = 0xe46f_af00_9ddb_7855;

const TEXTS: [&str; 4] = [
    "what changed since last week",
    "Wie viel Uhr ist es in Tokio?",
    "東京は今何時ですか",
    "Search the repository for commits about the login page, and list their authors and dates in a table",
];

fn digest(encoder: &Encoder) -> u64 {
    let vectors = encoder.encode(&TEXTS);
    let values = vectors.iter().flatten();
    values.fold(0xcbf2_9ce4_8422_2325, |hash, value| (hash ^ u64::from(value.to_bits())).wrapping_mul(0x100_0000_01b3))
}

#[test]
fn every_code_path_gives_the_same_vectors() {
    for kernel in Kernel::available() {
        let encoder = Encoder::built_in().unwrap().with_kernel(kernel).unwrap();
        assert_eq!(format!("{:x}", digest(&encoder)), format!("{DIGEST:x}"), "{kernel:?}");
    }
}

#[test]
fn the_best_code_path_is_not_the_portable_one() {
    if cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
        assert_ne!(Kernel::detect(), Kernel::Portable);
    }
}

#[test]
fn weights_that_were_given_back_are_read_again() {
    let encoder = Encoder::built_in().unwrap();
    let before = encoder.encode(&TEXTS);
    encoder.release();
    assert_eq!(encoder.encode(&TEXTS), before);
}
