//! Instruction sets: detects them, and provides the inner products of each.
//!
//! This module has `unsafe` for two purposes. One is to call functions compiled for an instruction set; a token
//! type proves that the processor supports it. The other is to load and store vectors, always from and to arrays of the right
//! size. The dot products of NEON and SVE are absent, because their intrinsics aren't stable in Rust 1.95.
#![expect(unsafe_code, reason = "SIMD loads, stores and calls into functions compiled for an instruction set")]

#[cfg(target_arch = "aarch64")]
use std::arch::aarch64::{
    float32x4_t, int32x4_t, vaddq_f32, vcombine_s8, vdup_n_s32, vdupq_n_f32, vdupq_n_s32, vget_low_s8, vld1q_f32, vld1q_s8, vmlal_high_s8,
    vmlal_s8, vmull_high_s8, vmull_s8, vmulq_n_f32, vpadalq_s16, vpaddq_s32, vreinterpret_s8_s32, vst1q_f32, vst1q_s32,
};
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{
    __m128, __m128i, __m512i, _MM_HINT_T0, _mm_add_epi32, _mm_add_ps, _mm_castpd_si128, _mm_cvtepi8_epi16, _mm_hadd_epi32, _mm_loaddup_pd,
    _mm_loadl_epi64, _mm_loadu_ps, _mm_loadu_si128, _mm_madd_epi16, _mm_mul_ps, _mm_prefetch, _mm_set1_ps, _mm_setzero_ps,
    _mm_setzero_si128, _mm_storeu_ps, _mm_storeu_si128, _mm256_add_epi32, _mm256_cvtepi8_epi16, _mm256_hadd_epi32, _mm256_madd_epi16,
    _mm256_permute4x64_epi64, _mm256_set1_epi64x, _mm256_setzero_si256, _mm256_storeu_si256, _mm512_dpbusd_epi32, _mm512_loadu_si512,
    _mm512_set1_epi32, _mm512_setzero_si512, _mm512_storeu_si512,
};

#[cfg(target_arch = "x86_64")]
use super::quantize::WIDE_GROUP;
use super::{
    attention::{self, AttentionScratch, Heads},
    float::{self, Arithmetic, Factors, PANEL},
    linear::{self, Activation, Matrix},
    quantize::{self, GROUP, Quantized},
    weights::ModelError,
};
use crate::domain::text::named::named;

named! {
    /// A code path of the encoder.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Kernel {
        /// AVX-512 with `vpdpbusd`.
        Vnni = "avx512-vnni",
        /// AVX2, with `vpmaddwd` on values of 16 bits, because sums of two products of bytes can exceed 16 bits.
        Avx2 = "avx2",
        /// SSE4.1, for processors without AVX2. Works like the path with AVX2.
        Sse41 = "sse4.1",
        /// NEON, which every 64-bit ARM processor has.
        Neon = "neon",
        /// Portable Rust for any processor.
        Portable = "portable",
    }
}

impl Kernel {
    /// Returns the fastest code path that this processor supports.
    pub fn detect() -> Self {
        Self::available()[0]
    }

    /// All code paths that this processor supports, fastest first. Never empty.
    pub fn available() -> Vec<Self> {
        let all = [Self::Vnni, Self::Avx2, Self::Sse41, Self::Neon, Self::Portable];
        all.into_iter().filter(|kernel| kernel.is_available()).collect()
    }

    #[cfg(target_arch = "x86_64")]
    fn is_available(self) -> bool {
        let avx2 = is_x86_feature_detected!("avx2");
        match self {
            Self::Vnni => {
                avx2 && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512vnni")
            }
            Self::Avx2 => avx2,
            Self::Sse41 => is_x86_feature_detected!("sse4.1"),
            Self::Neon => false,
            Self::Portable => true,
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn is_available(self) -> bool {
        match self {
            Self::Neon => cfg!(target_arch = "aarch64"),
            kernel => kernel == Self::Portable,
        }
    }
}

/// Proves that the processor has AVX-512 with VNNI. Only [`Processor::new`] creates it.
#[derive(Clone, Copy)]
struct Vnni(());

/// Proves that the processor has AVX2. Only [`Processor::new`] creates it.
#[derive(Clone, Copy)]
struct Avx2(());

/// Proves that the processor has SSE4.1. Only [`Processor::new`] creates it.
#[derive(Clone, Copy)]
struct Sse41(());

/// Proves that the processor has NEON. Only [`Processor::new`] creates it.
#[derive(Clone, Copy)]
struct Neon(());

/// Every processor supports this path, so it needs no proof.
#[derive(Clone, Copy)]
struct Portable;

/// A code path that this processor supports.
#[derive(Clone, Copy)]
pub(super) struct Processor(Path);

#[derive(Clone, Copy)]
enum Path {
    Vnni(Vnni),
    Avx2(Avx2),
    Sse41(Sse41),
    Neon(Neon),
    Portable(Portable),
}

impl Processor {
    /// Fails if this processor does not support `kernel`.
    pub(super) fn new(kernel: Kernel) -> Result<Self, ModelError> {
        if !kernel.is_available() {
            return Err(ModelError::Kernel(kernel.name()));
        }
        Ok(Self(match kernel {
            Kernel::Vnni => Path::Vnni(Vnni(())),
            Kernel::Avx2 => Path::Avx2(Avx2(())),
            Kernel::Sse41 => Path::Sse41(Sse41(())),
            Kernel::Neon => Path::Neon(Neon(())),
            Kernel::Portable => Path::Portable(Portable),
        }))
    }

    pub(super) fn kernel(self) -> Kernel {
        match self.0 {
            Path::Vnni(_) => Kernel::Vnni,
            Path::Avx2(_) => Kernel::Avx2,
            Path::Sse41(_) => Kernel::Sse41,
            Path::Neon(_) => Kernel::Neon,
            Path::Portable(_) => Kernel::Portable,
        }
    }
}

/// Compiles a generic function once per instruction set and calls the right copy.
macro_rules! dispatched {
    ($($(#[$comment:meta])* fn $name:ident = $module:ident($($argument:ident: $type:ty),+ $(,)?);)+) => {
        impl Processor {
            $($(#[$comment])*
            pub(super) fn $name(self, $($argument: $type),+) {
                #[cfg(target_arch = "x86_64")]
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2")]
                fn vnni(proof: Vnni, $($argument: $type),+) {
                    $module::$name(proof, $($argument),+);
                }
                #[cfg(target_arch = "x86_64")]
                #[target_feature(enable = "avx2")]
                fn avx2(proof: Avx2, $($argument: $type),+) {
                    $module::$name(proof, $($argument),+);
                }
                #[cfg(target_arch = "x86_64")]
                #[target_feature(enable = "sse4.1")]
                fn sse41(proof: Sse41, $($argument: $type),+) {
                    $module::$name(proof, $($argument),+);
                }
                #[cfg(target_arch = "aarch64")]
                #[target_feature(enable = "neon")]
                fn neon(proof: Neon, $($argument: $type),+) {
                    $module::$name(proof, $($argument),+);
                }
                match self.0 {
                    #[cfg(target_arch = "x86_64")]
                    // SAFETY: a `Vnni` exists only if every one of these features was detected.
                    Path::Vnni(proof) => unsafe { vnni(proof, $($argument),+) },
                    #[cfg(target_arch = "x86_64")]
                    // SAFETY: an `Avx2` exists only if the feature was detected.
                    Path::Avx2(proof) => unsafe { avx2(proof, $($argument),+) },
                    #[cfg(target_arch = "x86_64")]
                    // SAFETY: a `Sse41` exists only if the feature was detected.
                    Path::Sse41(proof) => unsafe { sse41(proof, $($argument),+) },
                    #[cfg(target_arch = "aarch64")]
                    // SAFETY: a `Neon` exists only on processors of this architecture, which all have the feature.
                    Path::Neon(proof) => unsafe { neon(proof, $($argument),+) },
                    #[cfg(not(target_arch = "x86_64"))]
                    Path::Vnni(_) | Path::Avx2(_) | Path::Sse41(_) => {}
                    #[cfg(not(target_arch = "aarch64"))]
                    Path::Neon(_) => {}
                    Path::Portable(proof) => $module::$name(proof, $($argument),+),
                }
            })+
        }
    };
}

dispatched! {
    /// See [`quantize::quantize_rows`].
    fn quantize_rows = quantize(input: &[f32], width: usize, output: &mut Quantized);
    /// See [`linear::linear`].
    fn linear = linear(input: &Quantized, matrix: Matrix<'_>, activation: Activation, output: &mut [f32]);
    /// See [`float::normalize_rows`].
    fn normalize_rows = float(
        values: &mut [f32], added: &[f32], stride: usize, factors: &[f32], offsets: &[f32], epsilon: f32,
    );
    /// See [`attention::attend`].
    fn attend = attention(
        projected: &[f32], width: usize, heads: Heads, scratch: &mut AttentionScratch, output: &mut [f32],
    );
}

impl Arithmetic for Portable {
    const TILE: usize = 4;

    #[inline(always)]
    fn multiply<const R: usize>(self, panel: &[[u8; 128]], rows: &[u8], _: bool, output: &mut [[i32; PANEL]; R]) {
        multiply_portable(panel, rows, output);
    }

    #[inline(always)]
    fn product<const R: usize>(self, factors: Factors<'_>, output: &mut [[f32; 16]; R]) {
        product_portable(factors, output);
    }
}

#[cfg(target_arch = "x86_64")]
impl Arithmetic for Vnni {
    const TILE: usize = 12;

    #[inline(always)]
    fn multiply<const R: usize>(self, panel: &[[u8; 128]], rows: &[u8], _: bool, output: &mut [[i32; PANEL]; R]) {
        // SAFETY: `self` exists only if the features were detected.
        unsafe { multiply_vnni(panel, rows, output) };
    }

    #[inline(always)]
    fn product<const R: usize>(self, factors: Factors<'_>, output: &mut [[f32; 16]; R]) {
        // SAFETY: `self` exists only if the features were detected.
        unsafe { product_512(factors, output) };
    }
}

#[cfg(target_arch = "x86_64")]
impl Arithmetic for Avx2 {
    const TILE: usize = 6;
    const OFFSET: u8 = 128;
    const WIDE: bool = true;

    #[inline(always)]
    fn multiply<const R: usize>(self, panel: &[[u8; 128]], rows: &[u8], ahead: bool, output: &mut [[i32; PANEL]; R]) {
        // SAFETY: `self` exists only if the features were detected.
        unsafe { multiply_avx2(panel, rows, ahead, output) };
    }

    #[inline(always)]
    fn product<const R: usize>(self, factors: Factors<'_>, output: &mut [[f32; 16]; R]) {
        // SAFETY: `self` exists only if the features were detected.
        unsafe { product_256(factors, output) };
    }
}

#[cfg(target_arch = "x86_64")]
impl Arithmetic for Sse41 {
    const TILE: usize = 6;
    const OFFSET: u8 = 128;
    const WIDE: bool = true;

    #[inline(always)]
    fn multiply<const R: usize>(self, panel: &[[u8; 128]], rows: &[u8], ahead: bool, output: &mut [[i32; PANEL]; R]) {
        // SAFETY: `self` exists only if the feature was detected.
        unsafe { multiply_sse41(panel, rows, ahead, output) };
    }

    #[inline(always)]
    fn product<const R: usize>(self, factors: Factors<'_>, output: &mut [[f32; 16]; R]) {
        // SAFETY: `self` exists only if the feature was detected.
        unsafe { product_128(factors, output) };
    }
}

#[cfg(target_arch = "aarch64")]
impl Arithmetic for Neon {
    const TILE: usize = 6;
    const OFFSET: u8 = 128;

    #[inline(always)]
    fn multiply<const R: usize>(self, panel: &[[u8; 128]], rows: &[u8], _: bool, output: &mut [[i32; PANEL]; R]) {
        // SAFETY: `self` exists only if the processor has the feature.
        unsafe { multiply_neon(panel, rows, output) };
    }

    #[inline(always)]
    fn product<const R: usize>(self, factors: Factors<'_>, output: &mut [[f32; 16]; R]) {
        // SAFETY: `self` exists only if the processor has the feature.
        unsafe { product_neon(factors, output) };
    }
}

/// A separate function, because the compiler does not vectorise it when it is inlined into its loops.
#[inline(never)]
fn multiply_portable<const R: usize>(panel: &[[u8; 128]], rows: &[u8], output: &mut [[i32; PANEL]; R]) {
    // This form, pairs of 16-bit products in plain arrays, compiles to the multiply-add instruction of most vector units. The
    // two sums per output are added at the end.
    let mut pairs = [[0i32; PANEL * 2]; R];
    for (weights, rows) in panel.iter().zip(rows.as_chunks::<GROUP>().0.as_chunks::<R>().0) {
        let mut wide = [0i16; 128];
        for (wide, weight) in wide.iter_mut().zip(weights) {
            *wide = i16::from(weight.cast_signed());
        }
        for (pairs, row) in pairs.iter_mut().zip(rows) {
            let [first, second, third, fourth] = row.map(i16::from);
            let eight = [first, second, third, fourth, first, second, third, fourth];
            let mut inputs = [0i16; 128];
            for inputs in inputs.as_chunks_mut::<8>().0 {
                *inputs = eight;
            }
            for (index, pair) in pairs.iter_mut().enumerate() {
                let (first, second) = (2 * index, 2 * index + 1);
                *pair += i32::from(inputs[first]) * i32::from(wide[first]) + i32::from(inputs[second]) * i32::from(wide[second]);
            }
        }
    }
    for (output, pairs) in output.iter_mut().zip(pairs) {
        for (sum, pair) in output.iter_mut().zip(pairs.as_chunks::<2>().0) {
            *sum = pair[0] + pair[1];
        }
    }
}

/// 12 rows × 32 outputs use 24 of the 32 registers. Two more contain weights, and one an activation.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn multiply_vnni<const R: usize>(panel: &[[u8; 128]], rows: &[u8], output: &mut [[i32; PANEL]; R]) {
    let mut sums = [[_mm512_setzero_si512(); 2]; R];
    for (weights, rows) in panel.iter().zip(rows.as_chunks::<GROUP>().0.as_chunks::<R>().0) {
        prefetch::<2048>(weights);
        let (weights, _) = weights.as_chunks::<64>();
        let (low, high) = (load_512(&weights[0]), load_512(&weights[1]));
        for (sum, row) in sums.iter_mut().zip(rows) {
            let row = _mm512_set1_epi32(i32::from_le_bytes(*row));
            sum[0] = _mm512_dpbusd_epi32(sum[0], row, low);
            sum[1] = _mm512_dpbusd_epi32(sum[1], row, high);
        }
    }
    for (output, sums) in output.iter_mut().zip(sums) {
        for (lanes, sum) in output.as_chunks_mut::<16>().0.iter_mut().zip(sums) {
            // SAFETY: the pointer is to 16 integers of 4 bytes, which the store fills exactly.
            unsafe { _mm512_storeu_si512(lanes.as_mut_ptr().cast(), sum) };
        }
    }
}

/// 6 rows × 8 outputs use 12 of the 16 registers, so a panel is read in four parts. A register contains two sums per output, which
/// are added at the end.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn multiply_avx2<const R: usize>(panel: &[[u8; 128]], rows: &[u8], ahead: bool, output: &mut [[i32; PANEL]; R]) {
    // The lengths are equal. With this line, the loop has one condition.
    let rows = &rows.as_chunks::<WIDE_GROUP>().0.as_chunks::<R>().0[..panel.len()];
    // Spread over all steps, because the memory is slower than a single part.
    let mut next = panel.as_ptr_range().end.cast::<u8>();
    for part in 0..4 {
        let mut sums = [[_mm256_setzero_si256(); 2]; R];
        for (weights, rows) in panel.iter().zip(rows) {
            if ahead {
                prefetch_line(next);
                next = next.wrapping_add(32);
            }
            let weights = weights.as_chunks::<16>().0;
            let weights = [part * 2, part * 2 + 1].map(|quarter| _mm256_cvtepi8_epi16(load_128(&weights[quarter])));
            for (sums, row) in sums.iter_mut().zip(rows) {
                let row = _mm256_set1_epi64x(i64::from_le_bytes(*row));
                for (sum, weights) in sums.iter_mut().zip(weights) {
                    *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(weights, row));
                }
            }
        }
        for (output, [first, second]) in output.iter_mut().zip(sums) {
            // The addition within each half of the registers puts outputs 4 and 5 before 2 and 3.
            let sums = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_hadd_epi32(first, second));
            let lanes = &mut output.as_chunks_mut::<8>().0[part];
            // SAFETY: the pointer is to 8 integers of 4 bytes, which the store fills exactly.
            unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), sums) };
        }
    }
}

/// Like [`multiply_avx2`], with 6 rows × 4 outputs in 12 of the 16 registers.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.1")]
fn multiply_sse41<const R: usize>(panel: &[[u8; 128]], rows: &[u8], ahead: bool, output: &mut [[i32; PANEL]; R]) {
    // The lengths are equal. With this line, the loop has one condition.
    let rows = &rows.as_chunks::<WIDE_GROUP>().0.as_chunks::<R>().0[..panel.len()];
    let mut next = panel.as_ptr_range().end.cast::<u8>();
    for part in 0..8 {
        let mut sums = [[_mm_setzero_si128(); 2]; R];
        for (weights, rows) in panel.iter().zip(rows) {
            if ahead {
                prefetch_line(next);
                next = next.wrapping_add(16);
            }
            let weights = weights.as_chunks::<8>().0;
            let weights = [part * 2, part * 2 + 1].map(|eighth| _mm_cvtepi8_epi16(load_64(&weights[eighth])));
            for (sums, row) in sums.iter_mut().zip(rows) {
                let row = load_twice(row);
                for (sum, weights) in sums.iter_mut().zip(weights) {
                    *sum = _mm_add_epi32(*sum, _mm_madd_epi16(weights, row));
                }
            }
        }
        for (output, [first, second]) in output.iter_mut().zip(sums) {
            let lanes = &mut output.as_chunks_mut::<4>().0[part];
            // SAFETY: the pointer is to 4 integers of 4 bytes, which the store fills exactly.
            unsafe { _mm_storeu_si128(lanes.as_mut_ptr().cast(), _mm_hadd_epi32(first, second)) };
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse2")]
#[inline]
fn load_128(bytes: &[u8; 16]) -> __m128i {
    // SAFETY: the reference is to 16 readable bytes, and the load needs no alignment.
    unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
}

/// Loads eight bytes into the lower half. With the conversion after it, this is one instruction.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse2")]
#[inline]
fn load_64(bytes: &[u8; 8]) -> __m128i {
    // SAFETY: the reference is to 8 readable bytes, and the load needs no alignment.
    unsafe { _mm_loadl_epi64(bytes.as_ptr().cast()) }
}

/// Loads eight bytes into both halves, in one instruction.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse3")]
#[inline]
fn load_twice(bytes: &[u8; 8]) -> __m128i {
    // SAFETY: the reference is to 8 readable bytes, and the load needs no alignment.
    unsafe { _mm_castpd_si128(_mm_loaddup_pd(bytes.as_ptr().cast())) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
#[inline]
fn load_512(bytes: &[u8; 64]) -> __m512i {
    // SAFETY: the reference is to 64 readable bytes, and the load needs no alignment.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

/// 6 rows × 8 outputs use 24 of the 32 registers, so a panel is read in four parts. A register contains two sums for each of two
/// outputs. The sums of two products are at most 2 × 128 × 127, which 16 bits contain.
#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "neon")]
fn multiply_neon<const R: usize>(panel: &[[u8; 128]], rows: &[u8], output: &mut [[i32; PANEL]; R]) {
    let rows = rows.as_chunks::<GROUP>().0.as_chunks::<R>().0;
    for part in 0..4 {
        let mut sums = [[vdupq_n_s32(0); 4]; R];
        // Sizes are multiples of 32 inputs, so groups come in pairs.
        for (weights, rows) in panel.as_chunks::<2>().0.iter().zip(rows.as_chunks::<2>().0) {
            for half in 0..2 {
                // SAFETY: the references are to 16 readable bytes each.
                let [first, second] =
                    [0, 1].map(|group| unsafe { vld1q_s8(weights[group].as_chunks::<16>().0[part * 2 + half].as_ptr().cast()) });
                for (row, sums) in sums.iter_mut().enumerate() {
                    let [one, other] = [0, 1].map(|group: usize| vreinterpret_s8_s32(vdup_n_s32(i32::from_le_bytes(rows[group][row]))));
                    let low = vmlal_s8(vmull_s8(vget_low_s8(first), one), vget_low_s8(second), other);
                    let high = vmlal_high_s8(vmull_high_s8(first, vcombine_s8(one, one)), second, vcombine_s8(other, other));
                    sums[half * 2] = vpadalq_s16(sums[half * 2], low);
                    sums[half * 2 + 1] = vpadalq_s16(sums[half * 2 + 1], high);
                }
            }
        }
        for (output, sums) in output.iter_mut().zip(sums) {
            let lanes = &mut output.as_chunks_mut::<8>().0[part].as_chunks_mut::<4>().0;
            for (lanes, sums) in lanes.iter_mut().zip(sums.as_chunks::<2>().0) {
                let sums: int32x4_t = vpaddq_s32(sums[0], sums[1]);
                // SAFETY: the pointer is to 4 integers of 4 bytes, which the store fills exactly.
                unsafe { vst1q_s32(lanes.as_mut_ptr(), sums) };
            }
        }
    }
}

/// Prefetches the weights that are needed after `AHEAD` more bytes. Hardware prefetchers stop at page boundaries.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn prefetch<const AHEAD: usize>(weights: &[u8; 128]) {
    for line in weights.as_chunks::<64>().0 {
        prefetch_line(line.as_ptr().wrapping_add(AHEAD));
    }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn prefetch_line(address: *const u8) {
    // SAFETY: a prefetch reads nothing and accepts any address.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
}

#[inline(never)]
fn product_portable<const R: usize>(factors: Factors<'_>, output: &mut [[f32; 16]; R]) {
    for (sums, row) in output.iter_mut().zip(factors.rows::<R>()) {
        *sums = [0.0; 16];
        for (factor, columns) in row.iter().zip(factors.right.chunks(factors.right_stride)) {
            for (sum, column) in sums.iter_mut().zip(&columns[..16]) {
                *sum += factor * column;
            }
        }
    }
}

/// 2 rows × 16 columns use 8 of the 16 registers. Four more contain the columns, and one a factor.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.1")]
fn product_128<const R: usize>(factors: Factors<'_>, output: &mut [[f32; 16]; R]) {
    for (pair, output) in output.chunks_mut(2).enumerate() {
        let factors = Factors { left: &factors.left[2 * pair * factors.left_stride..], ..factors };
        match output {
            [first, second] => rows_128(factors, [first, second]),
            rest => rest.iter_mut().for_each(|row| rows_128(factors, [row])),
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.1")]
fn rows_128<const R: usize>(factors: Factors<'_>, output: [&mut [f32; 16]; R]) {
    let (rows, right, stride) = (factors.rows::<R>(), factors.columns(), factors.right_stride);
    let mut sums = [[_mm_setzero_ps(); 4]; R];
    for step in 0..factors.depth {
        let columns: [__m128; 4] = std::array::from_fn(|at| {
            // SAFETY: there are 16 floats at each of the `depth` steps, and the load needs no alignment.
            unsafe { _mm_loadu_ps(right.as_ptr().add(step * stride + 4 * at)) }
        });
        for (sums, row) in sums.iter_mut().zip(rows) {
            // SAFETY: each row has `depth` floats.
            let factor = _mm_set1_ps(unsafe { *row.get_unchecked(step) });
            for (sum, columns) in sums.iter_mut().zip(columns) {
                *sum = _mm_add_ps(*sum, _mm_mul_ps(factor, columns));
            }
        }
    }
    for (output, sums) in output.into_iter().zip(sums) {
        for (lanes, sum) in output.as_chunks_mut::<4>().0.iter_mut().zip(sums) {
            // SAFETY: the pointer is to 4 floats, which the store fills exactly.
            unsafe { _mm_storeu_ps(lanes.as_mut_ptr(), sum) };
        }
    }
}

/// 6 rows use 6 registers for sums. One more contains the columns.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn product_512<const R: usize>(factors: Factors<'_>, output: &mut [[f32; 16]; R]) {
    use std::arch::x86_64::{_mm512_add_ps, _mm512_loadu_ps, _mm512_mul_ps, _mm512_set1_ps, _mm512_setzero_ps, _mm512_storeu_ps};
    let (rows, right, stride) = (factors.rows::<R>(), factors.columns(), factors.right_stride);
    let mut sums = [_mm512_setzero_ps(); R];
    for step in 0..factors.depth {
        // SAFETY: there are 16 floats at each of the `depth` steps, and the load needs no alignment.
        let columns = unsafe { _mm512_loadu_ps(right.as_ptr().add(step * stride)) };
        for (sum, row) in sums.iter_mut().zip(rows) {
            // SAFETY: each row has `depth` floats.
            let factor = _mm512_set1_ps(unsafe { *row.get_unchecked(step) });
            *sum = _mm512_add_ps(*sum, _mm512_mul_ps(factor, columns));
        }
    }
    for (output, sum) in output.iter_mut().zip(sums) {
        // SAFETY: the pointer is to 16 floats, which the store fills exactly.
        unsafe { _mm512_storeu_ps(output.as_mut_ptr(), sum) };
    }
}

/// 6 rows × 16 columns use 12 of the 16 registers. Two more contain the columns, and one a factor.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn product_256<const R: usize>(factors: Factors<'_>, output: &mut [[f32; 16]; R]) {
    use std::arch::x86_64::{_mm256_add_ps, _mm256_loadu_ps, _mm256_mul_ps, _mm256_set1_ps, _mm256_setzero_ps, _mm256_storeu_ps};
    let (rows, right, stride) = (factors.rows::<R>(), factors.columns(), factors.right_stride);
    let mut sums = [[_mm256_setzero_ps(); 2]; R];
    for step in 0..factors.depth {
        // SAFETY: there are 16 floats at each of the `depth` steps, and the loads need no alignment.
        let columns = [0, 8].map(|at| unsafe { _mm256_loadu_ps(right.as_ptr().add(step * stride + at)) });
        for (sums, row) in sums.iter_mut().zip(rows) {
            // SAFETY: each row has `depth` floats.
            let factor = _mm256_set1_ps(unsafe { *row.get_unchecked(step) });
            for (sum, columns) in sums.iter_mut().zip(columns) {
                *sum = _mm256_add_ps(*sum, _mm256_mul_ps(factor, columns));
            }
        }
    }
    for (output, sums) in output.iter_mut().zip(sums) {
        for (lanes, sum) in output.as_chunks_mut::<8>().0.iter_mut().zip(sums) {
            // SAFETY: the pointer is to 8 floats, which the store fills exactly.
            unsafe { _mm256_storeu_ps(lanes.as_mut_ptr(), sum) };
        }
    }
}

/// 6 rows × 16 columns use 24 of the 32 registers. Four more contain the columns.
#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "neon")]
fn product_neon<const R: usize>(factors: Factors<'_>, output: &mut [[f32; 16]; R]) {
    let rows = factors.rows::<R>();
    let mut sums = [[vdupq_n_f32(0.0); 4]; R];
    for (step, columns) in factors.right.chunks(factors.right_stride).take(factors.depth).enumerate() {
        let columns: &[f32; 16] = columns.first_chunk().unwrap_or(&[0.0; 16]);
        // SAFETY: all loads are within the 16 floats.
        let columns: [float32x4_t; 4] = std::array::from_fn(|at| unsafe { vld1q_f32(columns.as_ptr().add(4 * at)) });
        for (sums, row) in sums.iter_mut().zip(rows) {
            for (sum, columns) in sums.iter_mut().zip(columns) {
                *sum = vaddq_f32(*sum, vmulq_n_f32(columns, row[step]));
            }
        }
    }
    for (output, sums) in output.iter_mut().zip(sums) {
        for (lanes, sum) in output.as_chunks_mut::<4>().0.iter_mut().zip(sums) {
            // SAFETY: the pointer is to 4 floats, which the store fills exactly.
            unsafe { vst1q_f32(lanes.as_mut_ptr(), sum) };
        }
    }
}
