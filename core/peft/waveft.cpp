#include <cctype>
#include <cstdlib>

#include "ops/vision.h"
#include "peft/layer.h"
#include "peft/methods.h"

/// WaveFT, after peft 0.21 (tuners/waveft/layer.py, waverec2d.py): a weight's change is an inverse wavelet transform of
/// a few coefficients.
namespace oometer {

namespace {

class WaveftLinear;
struct WaveftConfig final : ConfigOf<WaveftLinear, WaveftConfig> {
  std::int64_t n_frequency = 2592;
  NumberByModule n_frequency_pattern;
  std::int64_t filter = 2;  ///< coefficients of the wavelet's filters
  bool use_idwt = true;
};

class WaveftLinear : public TunerLayer {
 public:
  WaveftLinear(const WaveftConfig& config, const LayerPlace& place)
      : TunerLayer(place, "waveft.WaveFTLinear"),
        config_(config),
        count_(ModulePattern(config.n_frequency_pattern).of(path(), config.n_frequency)) {
    declare(spectrum_, "waveft_spectrum");
  }

  std::string refusal() const override {
    if (count_ <= in_features_ * out_features_) return {};
    return "`n_frequency` should be less than or equal to the product of the input and output dimensions but the "
           "value passed is " +
           std::to_string(count_) + " and the product is " + std::to_string(in_features_ * out_features_);
  }

  void make_parameters(std::vector<Parameter>& parameters, std::span<const Parameter>) override {
    make(parameters, spectrum_, {count_});
  }

 private:
  Tensor indices_on_device() const { return empty(spectrum_.tensor.context(), Op::to_copy, {2, count_}, DType::int64); }
  Tensor zeros(std::int64_t rows, std::int64_t columns) const {
    return empty(spectrum_.tensor.context(), Op::zeros, {rows, columns}, spectrum_.tensor.dtype());
  }

  // get_delta_weight
  Tensor delta_weight() const {
    const Tensor& spectrum = spectrum_;
    const Tensor indices = indices_on_device();
    if (!config_.use_idwt) {
      Tensor dense_spectrum = zeros(out_features_, in_features_);
      dense_spectrum = index_put_(dense_spectrum, select(indices, 0, 0), select(indices, 0, 1), spectrum);
      return mul_scalar(dense_spectrum);
    }
    const auto padded = [&](std::int64_t features) {
      const std::int64_t size = features + config_.filter - 2;
      return size + size % 2;
    };
    const std::int64_t rows = padded(out_features_), columns = padded(in_features_);
    Tensor dense_spectrum = zeros(rows, columns);
    const Tensor padded_indices = clone(indices);
    Tensor valid_mask;
    {
      const Tensor row = select(padded_indices, 0, 0), column = select(padded_indices, 0, 1);
      const Tensor row_fits = pointwise(Op::lt, {&row}, DType::boolean);
      const Tensor column_fits = pointwise(Op::lt, {&column}, DType::boolean);
      valid_mask = pointwise(Op::bitwise_and, {&row_fits, &column_fits}, DType::boolean);
    }
    Tensor valid_indices;
    {
      const Tensor found = nonzero(valid_mask, count_);
      valid_indices = empty(indices.context(), Op::index, {2, count_}, DType::int64);
    }
    const Tensor valid_spectrum = index_mask(spectrum, valid_mask, count_);
    dense_spectrum =
        index_put_(dense_spectrum, select(valid_indices, 0, 0), select(valid_indices, 0, 1), valid_spectrum);
    const std::int64_t H2 = rows / 2, W2 = columns / 2;
    const auto part = [&](std::int64_t row, std::int64_t column) {
      return slice(slice(dense_spectrum, 0, row, H2), 1, column, W2);
    };
    const Tensor cA = part(0, 0), cH = part(0, W2), cV = part(H2, 0), cD = part(H2, W2);
    Tensor delta_weight;
    {
      const Tensor reconstructed = waverec2d({unsqueeze(cA, 0), unsqueeze(cH, 0), unsqueeze(cV, 0), unsqueeze(cD, 0)});
      delta_weight = mul_scalar(reconstructed);
    }
    if (delta_weight.size(0) != out_features_ || delta_weight.size(1) != in_features_) {
      delta_weight = slice(delta_weight, 0, (delta_weight.size(0) - out_features_) / 2, out_features_);
      delta_weight = slice(delta_weight, 1, (delta_weight.size(1) - in_features_) / 2, in_features_);
    }
    return delta_weight;
  }

  Tensor waverec2d(const TensorList& coefficients) const {
    Context& context = spectrum_.tensor.context();
    const DType dtype = spectrum_.tensor.dtype();
    const std::int64_t length = config_.filter;
    // _get_filter_tensors: dec_lo, dec_hi, rec_lo, rec_hi; _construct_2d_filt
    TensorList filters;
    for (int i = 0; i < 4; ++i) filters.push_back(empty(context, Op::to_copy, {length}, dtype));
    filters = {filters[1], filters[2], filters[3]};  // `_`, rec_lo, rec_hi
    Tensor rec_filt;
    {
      TensorList outer;
      for (int i = 0; i < 4; ++i) outer.push_back(empty(context, Op::mul, {length, length}, dtype));
      rec_filt = stack(outer);
    }
    rec_filt = unsqueeze(rec_filt, 1);
    Tensor res_ll = stack(coefficients, 1);
    {
      ConvolutionOptions options;
      options.stride = {2, 2};
      options.padding = options.output_padding = {0, 0};
      options.dilation = {1, 1};
      options.transposed = true;
      const Tensor lowered = autocast_lower(res_ll);
      const Tensor kernel = autocast_lower(rec_filt);
      res_ll = convolution(lowered, kernel, {}, options);
    }
    res_ll = select(res_ll, 1, 0);
    const std::int64_t pad = (2 * length - 3) / 2;
    if (pad > 0) {
      res_ll = slice(res_ll, 1, pad, res_ll.size(1) - 2 * pad);
      res_ll = slice(res_ll, 2, pad, res_ll.size(2) - 2 * pad);
    }
    return select(res_ll, 0, 0);
  }

  Tensor forward(const Linear& base_layer, const Tensor& argument) const override {
    Tensor result = base_layer.forward(argument);
    const Tensor delta_w = delta_weight();
    const Tensor x = to(argument, delta_w.dtype());
    {
      const Tensor added = linear(x, delta_w, {});
      result = add(result, added);
    }
    return to(result, argument.dtype());
  }

  const WaveftConfig& config_;
  std::int64_t count_;
  AdapterParameter spectrum_;
};

/// WAVELET_REDUCTIONS (constants.py): a filter's length, by the family's number; 0: peft has none of that name.
std::int64_t filter_of(const std::string& family) {
  const std::size_t digits = family.find_first_of("0123456789");
  if (digits == std::string::npos || family.find_first_not_of("0123456789", digits) != std::string::npos) return 0;
  const std::string name = family.substr(0, digits);
  const std::int64_t number = std::atoll(family.c_str() + digits);
  if (name == "db" && number >= 1 && number <= 38) return 2 * number;
  if (name == "sym" && number >= 2 && number <= 20) return 2 * number;
  if (name == "coif" && number >= 1 && number <= 17) return 6 * number;
  return 0;
}

}  // namespace

std::shared_ptr<const PeftMethod> read_waveft(ConfigReader& reader, const PeftDefaults& defaults) {
  const auto config = std::make_shared<WaveftConfig>();
  read_targets(reader, config->target_modules, config->modules_to_save, defaults.lora);
  refuse_bias(reader);
  config->n_frequency = reader.integer("n_frequency", config->n_frequency);
  config->n_frequency_pattern = read_pattern(reader, "n_frequency_pattern");
  config->use_idwt = reader.boolean("use_idwt", true);
  if (reader.has("proportional_parameters") && reader.boolean("proportional_parameters", false))
    reader.fail_found("proportional_parameters", "not-modelled", "it is not supported yet: leave it out");
  config->filter = filter_of(reader.text("wavelet_family", "db1"));
  if (config->filter == 0)
    reader.fail_found("wavelet_family", "unknown-value",
                      "not a wavelet family that peft supports; expected one such as \"db1\" or \"sym2\"");
  reader.ignore({"scaling", "random_loc_seed", "init_weights"});
  return config;
}

}  // namespace oometer
