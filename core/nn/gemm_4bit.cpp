#include "nn/gemm_4bit.h"

namespace oometer {

namespace {

constexpr std::int64_t kBlock = 64;       // blocksize: elements that share a constant
constexpr std::int64_t kMostRows = 1536;  // _gemm_4bit_custom_max_m
constexpr std::int64_t kFewRows = 4;      // _GEMM_4BIT_CUSTOM_FLOOR_M
constexpr std::int64_t kSmallWeight = 4 << 20;

/// A product, and where its blocks of columns stand among the multiprocessors: a wave is one on each.
struct Product {
  int major, minor;
  std::int64_t sms, blocks, m, n, k;

  bool is(int its_major, int its_minor) const { return major == its_major && minor == its_minor; }
  bool is_sm80() const { return is(8, 0); }
  bool is_sm90() const { return major == 9; }
  bool is_hbm() const { return is_sm80() || is_sm90(); }
  bool waves(std::int64_t count) const { return blocks >= sms * count; }
  bool half_wave() const { return blocks >= sms / 2; }
};

bool of_small_weight(const Product& p) {
  if (p.k * 2 < p.n) {
    if (p.is_hbm()) {
      const bool low_wave = p.blocks * 3 < p.sms;
      return p.m <= (p.is_sm80() ? low_wave ? 1536 : 512 : low_wave ? 512 : 320);
    }
    if (p.is(7, 5)) return p.m <= (p.waves(3) ? 320 : p.k >= 1024 ? 64 : p.k >= 704 ? 96 : 320);
    if (p.waves(1)) return p.m <= 320;
    return p.m <= (p.blocks * p.k > p.sms * 320 ? 192 : 320);
  }
  const bool quarter_wave = p.blocks * 4 <= p.sms;
  if (p.is_sm80() && quarter_wave) return p.m <= (p.k < p.n ? 384 : p.blocks * 8 <= p.sms ? 32 : 128);
  if (p.is(7, 5) && p.blocks < p.sms && p.m > 8) return p.m <= 64;
  if (quarter_wave) return p.m <= (p.k < p.n || p.is_hbm() ? 32 : 23);
  return p.blocks * 2 <= p.sms && p.m <= 16;
}

/// Of 5 to 7 rows.
bool of_few_rows(const Product& p) {
  if (!p.is_hbm() || p.m < 6 || p.blocks < (p.is_sm90() ? 36 : 48)) return true;
  const bool below_75_percent = p.blocks * 4 < p.sms * 3;
  const bool below_60_percent = p.blocks * 5 < p.sms * 3;
  if (p.k > p.n) return !below_75_percent;
  if (p.k < p.n) return true;
  if (p.is_sm80()) return !below_60_percent;
  return !below_75_percent || below_60_percent;
}

bool on_sm80(const Product& p) {
  if (p.waves(3)) return p.m <= 128;
  if (p.waves(1)) return p.m <= (p.k < p.n ? 64 : 32);
  if (p.k >= p.n * 3 && p.blocks * 4 > p.sms) return false;
  if (p.k == p.n && p.blocks >= 48 && p.blocks * 5 < p.sms * 3) return false;
  if (p.blocks * 2 < p.sms) {
    if (p.k <= p.n) return p.m <= 128;
    if (p.blocks * 3 >= p.sms) return false;
  }
  if (p.half_wave() && p.k < p.n) return p.m <= 128;
  return p.m <= 16;
}

bool on_sm90(const Product& p) {
  if (p.waves(1)) return p.m <= (p.waves(3) ? 64 : p.waves(2) ? 48 : 32);
  if (!p.half_wave() || (p.k >= p.n && p.blocks * 4 < p.sms * 3)) return false;
  return p.m <= 16;
}

bool on_sm120(const Product& p) {
  if (p.waves(2)) return p.m <= (p.waves(3) ? 256 : 128);
  if (p.blocks * 5 >= p.sms * 4) return p.m <= (p.k >= p.n ? 96 : 64);
  if (p.half_wave()) return p.m <= (p.k * 2 >= p.n && p.blocks >= 128 ? 64 : 8);
  return p.m <= (p.k > p.n * 2 && p.blocks > 64 ? 16 : 8);
}

/// sm89, and whatever has no rule of its own.
bool on_others(const Product& p) {
  const bool tall = p.k > p.n * 2;
  if (p.waves(2)) return p.m <= (p.waves(3) ? 256 : 128);
  if (p.blocks * 5 >= p.sms * 4) {
    if (tall || p.blocks >= 200) return p.m <= 128;
    return p.m <= (p.k < p.n ? 64 : p.sms >= 60 ? 128 : 32);
  }
  if (p.half_wave()) return p.m <= (tall ? 64 : p.blocks >= 64 ? 8 : 32);
  if (p.k > p.n && p.blocks <= 48) return p.m <= (p.k >= p.n * 3 ? 12 : 10);
  return p.m <= (tall || p.blocks < 48 ? 16 : 8);
}

}  // namespace

bool multiplies_in_4bit(const Device& device, DType dtype, std::int64_t m, std::int64_t n, std::int64_t k) {
  if (m > kMostRows || k % kBlock != 0) return false;
  if (m <= kFewRows) return true;
  const Product p{device.major, device.minor, device.sm_count, (n + 63) / 64, m, n, k};
  const bool is_sm75 = p.is(7, 5);
  if (dtype == DType::float32 || p.major < 7 || (p.major == 7 && (p.minor < 5 || dtype != DType::float16)))
    return m < 8;
  if (p.is(8, 7) || p.major == 11) return false;
  if (p.major == 10) {
    if (p.waves(3)) return m <= 32;
    return p.waves(1) && k < n && m <= 8;
  }
  if (n * k < kSmallWeight) return of_small_weight(p);
  if (m > 512) return false;
  if (m < 8) return of_few_rows(p);
  if (is_sm75) return m <= (p.waves(3) ? k < n ? 128 : 64 : p.half_wave() ? 64 : 32);
  if (p.is_sm80()) return on_sm80(p);
  if (p.is(8, 6)) return m <= (p.waves(1) ? 128 : p.half_wave() ? 64 : 16);
  if (p.is_sm90()) return on_sm90(p);
  if (p.is(12, 1) && p.waves(1)) return m <= 256;
  if (p.is(12, 0)) return on_sm120(p);
  return on_others(p);
}

}  // namespace oometer
