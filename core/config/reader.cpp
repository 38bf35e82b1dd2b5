#include "config/reader.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

namespace oometer {

using nlohmann::json;

namespace {

/// Keys of PreTrainedConfig and of generation (transformers 5.23, configuration_utils.py; generation parameters are
/// popped there) and bookkeeping of the hub: they decide nothing about memory.
constexpr std::string_view kHarmless[] = {"_attn_implementation",
                                          "_attn_implementation_autoset",
                                          "_commit_hash",
                                          "_name_or_path",
                                          "add_cross_attention",
                                          "architectures",
                                          "attn_implementation",
                                          "auto_map",
                                          "bad_words_ids",
                                          "begin_suppress_tokens",
                                          "bos_token_id",
                                          "cross_attention_hidden_size",
                                          "decoder_start_token_id",
                                          "diversity_penalty",
                                          "do_sample",
                                          "dtype",
                                          "early_stopping",
                                          "encoder_no_repeat_ngram_size",
                                          "eos_token_id",
                                          "exponential_decay_length_penalty",
                                          "finetuning_task",
                                          "forced_bos_token_id",
                                          "forced_eos_token_id",
                                          "id2label",
                                          "ignore_index",
                                          "initializer_factor",
                                          "initializer_range",
                                          "is_decoder",
                                          "is_encoder_decoder",
                                          "label2id",
                                          "layer_norm_eps",
                                          "length_penalty",
                                          "max_length",
                                          "min_length",
                                          "model_type",
                                          "name_or_path",
                                          "no_repeat_ngram_size",
                                          "num_beam_groups",
                                          "num_beams",
                                          "num_labels",
                                          "num_return_sequences",
                                          "output_scores",
                                          "pad_token_id",
                                          "prefix",
                                          "problem_type",
                                          "remove_invalid_values",
                                          "repetition_penalty",
                                          "return_dict",
                                          "return_dict_in_generate",
                                          "rms_norm_eps",
                                          "rope_parameters",
                                          "rope_scaling",
                                          "rope_theta",
                                          "sep_token_id",
                                          "suppress_tokens",
                                          "task_specific_params",
                                          "temperature",
                                          "tf_legacy_loss",
                                          "tokenizer_class",
                                          "top_k",
                                          "top_p",
                                          "torch_dtype",
                                          "torchscript",
                                          "transformers_version",
                                          "typical_p",
                                          "use_bfloat16",
                                          "use_cache",
                                          "unk_token_id"};

/// These change memory only where they are set to something.
constexpr std::string_view kHarmlessIfUnset[] = {"chunk_size_feed_forward", "output_attentions", "output_hidden_states",
                                                 "pruned_heads", "tie_encoder_decoder"};

bool is_one_of(std::string_view key, const std::string_view* begin, const std::string_view* end) {
  return std::find(begin, end, key) != end;
}

bool is_unset(const json& value) {
  return value.is_null() || value == false || value == 0 || ((value.is_object() || value.is_array()) && value.empty());
}

/// RFC 6901: "~" and "/" inside a key.
std::string escape(std::string_view key) {
  std::string out;
  for (const char c : key) {
    if (c == '~') {
      out += "~0";
    } else if (c == '/') {
      out += "~1";
    } else {
      out += c;
    }
  }
  return out;
}

/// Builds the document as nlohmann's own handler does, and stops where it is too deep or a key comes twice.
class DocumentHandler : public nlohmann::json_sax<json> {
 public:
  DocumentHandler(json& root, std::size_t max_depth) : builder_(root, false), max_depth_(max_depth) {}

  const std::optional<Error>& error() const { return error_; }

  bool null() override { return builder_.null(); }
  bool boolean(bool value) override { return builder_.boolean(value); }
  bool number_integer(number_integer_t value) override { return builder_.number_integer(value); }
  bool number_unsigned(number_unsigned_t value) override { return builder_.number_unsigned(value); }
  bool number_float(number_float_t value, const string_t& text) override { return builder_.number_float(value, text); }
  bool string(string_t& value) override { return builder_.string(value); }
  bool binary(binary_t& value) override { return builder_.binary(value); }

  bool start_object(std::size_t count) override {
    keys_.emplace_back();
    return deeper() && builder_.start_object(count);
  }
  bool end_object() override {
    keys_.pop_back();
    return builder_.end_object();
  }
  bool start_array(std::size_t count) override {
    keys_.emplace_back();
    return deeper() && builder_.start_array(count);
  }
  bool end_array() override {
    keys_.pop_back();
    return builder_.end_array();
  }
  bool key(string_t& name) override {
    if (!keys_.back().insert(name).second) {
      return fail("duplicate-key", "found the key " + quote(name) + " twice in one object; keep one");
    }
    return builder_.key(name);
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& exception) override {
    const std::string what = exception.what();
    const bool overflow = what.find("number overflow") != std::string::npos;
    return fail("not-json", "not valid JSON near character " + std::to_string(position) +
                                (overflow ? ": a number is too large" : "") + "; a job is one JSON object");
  }

 private:
  bool fail(std::string code, std::string message) {
    error_ = Error{std::move(code), "", std::move(message)};
    return false;
  }
  bool deeper() {
    return keys_.size() <= max_depth_ ||
           fail("too-deep", "nested deeper than " + std::to_string(max_depth_) + " levels; a job needs fewer than ten");
  }

  nlohmann::detail::json_sax_dom_parser<json> builder_;
  std::size_t max_depth_;
  std::vector<std::set<std::string>> keys_;  // of each open object; empty for lists
  std::optional<Error> error_;
};

constexpr std::size_t kMaxDocument = std::size_t{4} << 20;

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({substituted, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

/// Of ASCII text: no character is cut in two.
std::string clip(std::string text) {
  if (text.size() > 60) text.replace(56, std::string::npos, "...");
  return text;
}

std::string join(const std::vector<std::string_view>& words) {
  std::string out;
  for (const std::string_view word : words) out += (out.empty() ? "" : ", ") + std::string(word);
  return out;
}

}  // namespace

Result<json> parse_json(std::string_view text, std::size_t max_depth) {
  if (text.size() > kMaxDocument) {
    return Error{"too-large", "", "found " + std::to_string(text.size()) + " bytes; a job takes less than 4 MiB"};
  }
  json root;
  DocumentHandler handler(root, max_depth);
  const bool done = json::sax_parse(text.begin(), text.end(), &handler);
  if (handler.error()) return *handler.error();
  if (!done) return Error{"not-json", "", "not valid JSON; a job is one JSON object"};
  return root;
}

std::string describe(const json& value) {
  if (value.is_null()) return "null";
  if (value.is_object()) return "an object";
  return clip(value.dump(-1, ' ', true, json::error_handler_t::replace));
}

std::string lower_case(std::string text) {
  for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return text;
}

std::string quote(std::string_view text) {
  return clip(json(text).dump(-1, ' ', true, json::error_handler_t::replace));
}

std::string_view closest(std::string_view word, const std::vector<std::string_view>& candidates) {
  std::string_view best;
  if (word.size() > 60) return best;
  std::size_t least = std::max<std::size_t>(2, word.size() / 3) + 1;
  for (const std::string_view candidate : candidates) {
    const std::size_t distance = edit_distance(word, candidate);
    if (distance < least) {
      least = distance;
      best = candidate;
    }
  }
  return best;
}

ConfigReader::ConfigReader(const json* object, std::string pointer, Mode mode, Findings& findings)
    : object_(object && object->is_object() ? object : nullptr),
      pointer_(std::move(pointer)),
      mode_(mode),
      findings_(findings) {
  if (object && !object_) fail("", "wrong-type", "found " + describe(*object) + "; expected an object {...}");
}

std::string ConfigReader::pointer_to(std::string_view key) const {
  return key.empty() ? pointer_ : pointer_ + "/" + escape(key);
}

void ConfigReader::note(std::string pointer, const char* code, const std::string& message) {
  if (!findings_.error) findings_.error = Error{code, std::move(pointer), message};
}

void ConfigReader::fail(const char* key, const char* code, const std::string& message) {
  note(pointer_to(key), code, message);
}

void ConfigReader::fail_found(const char* key, const char* code, const char* expected) {
  fail_found(key, code, std::string(expected));
}

void ConfigReader::fail_found(const char* key, const char* code, const std::string& expected) {
  const json* value = get(key);
  fail(key, code, "found " + (value ? describe(*value) : "nothing") + "; " + expected);
}

const json* ConfigReader::get(std::string_view key) {
  if (!object_) return nullptr;
  known_.push_back(key);
  const auto found = object_->find(key);
  return found == object_->end() ? nullptr : &*found;
}

const json* ConfigReader::find(const char* key) {
  const json* value = get(key);
  return value && !value->is_null() ? value : nullptr;
}

bool ConfigReader::has(const char* key) { return find(key) != nullptr; }

bool ConfigReader::is_null(const char* key) {
  const json* value = get(key);
  return value && value->is_null();
}

bool ConfigReader::is_list(const char* key) { return has(key) && find(key)->is_array(); }

bool ConfigReader::is_object(const char* key) { return has(key) && find(key)->is_object(); }

bool ConfigReader::is_auto(const char* key) { return has(key) && *find(key) == "auto"; }

std::optional<double> ConfigReader::to_number(const json& value) const {
  if (value.is_number()) return value.get<double>();
  if (mode_ == Mode::strict || !value.is_string()) return std::nullopt;
  const std::string& text = value.get_ref<const std::string&>();
  if (text.empty() || text.size() > 40 || text.find_first_not_of("0123456789+-.eE") != std::string::npos) {
    return std::nullopt;
  }
  const Result<json> number = parse_json(text);
  return number && number->is_number() ? std::optional(number->get<double>()) : std::nullopt;
}

std::optional<std::int64_t> ConfigReader::to_integer(const std::string& pointer, const json& value, Range range) {
  const std::optional<double> number = to_number(value);
  // Doubles hold every whole number of the ranges in use exactly; NaN fails the comparisons.
  if (number && *number >= static_cast<double>(range.min) && *number <= static_cast<double>(range.max) &&
      std::floor(*number) == *number) {
    return static_cast<std::int64_t>(*number);
  }
  note(pointer, number ? "out-of-range" : "wrong-type",
       "found " + describe(value) + "; expected a whole number from " + std::to_string(range.min) + " to " +
           std::to_string(range.max));
  return std::nullopt;
}

std::int64_t ConfigReader::integer(const char* key, std::int64_t fallback, Range range) {
  const json* value = get(key);
  return value ? to_integer(pointer_to(key), *value, range).value_or(fallback) : fallback;
}

std::optional<std::int64_t> ConfigReader::optional_integer(const char* key, Range range) {
  const json* value = find(key);
  return value ? to_integer(pointer_to(key), *value, range) : std::nullopt;
}

const json* ConfigReader::list(const char* key) {
  const json* value = find(key);
  if (!value || (value->is_array() && value->size() <= 10'000)) return value;
  fail_found(key, "wrong-type", "expected a list [...]");
  return nullptr;
}

std::vector<std::int64_t> ConfigReader::integers(const char* key, Range range) {
  std::vector<std::int64_t> out;
  const json* values = list(key);
  for (std::size_t i = 0; values && i < values->size(); ++i) {
    const auto number = to_integer(pointer_to(key) + "/" + std::to_string(i), (*values)[i], range);
    if (!number) return {};
    out.push_back(*number);
  }
  return out;
}

std::optional<double> ConfigReader::optional_number(const char* key, double min, double max) {
  const json* value = find(key);
  if (!value) return std::nullopt;
  const std::optional<double> number = to_number(*value);
  if (!number || !(*number >= min && *number <= max)) {
    const auto plain = [](double x) { return json(x).dump(); };
    fail_found(key, number ? "out-of-range" : "wrong-type",
               "expected a number from " + plain(min) + " to " + plain(max));
    return std::nullopt;
  }
  return number;
}

double ConfigReader::number(const char* key, double fallback, double min, double max) {
  return optional_number(key, min, max).value_or(fallback);
}

bool ConfigReader::boolean(const char* key, bool fallback) {
  const json* value = get(key);
  if (!value) return fallback;
  if (value->is_boolean()) return value->get<bool>();
  fail_found(key, "wrong-type", "expected true or false");
  return fallback;
}

std::string ConfigReader::text(const char* key, std::string_view fallback) {
  const json* value = get(key);
  if (!value) return std::string(fallback);
  if (value->is_string()) return value->get<std::string>();
  fail_found(key, "wrong-type", "expected text in quotes");
  return std::string(fallback);
}

std::vector<std::string> ConfigReader::texts_of_layers(const char* key, std::int64_t layers) {
  std::vector<std::string> types = texts(key);
  if (!types.empty() && types.size() != static_cast<std::size_t>(layers))
    fail(key, "inconsistent",
         "found " + std::to_string(types.size()) + " types for " + std::to_string(layers) +
             " layers; expected num_hidden_layers of them");
  return types;
}

std::vector<std::string> ConfigReader::texts(const char* key) {
  std::vector<std::string> out;
  const json* values = list(key);
  for (std::size_t i = 0; values && i < values->size(); ++i) {
    const json& value = (*values)[i];
    if (!value.is_string() || value.get_ref<const std::string&>().empty()) {
      note(pointer_to(key) + "/" + std::to_string(i), "wrong-type",
           "found " + describe(value) + "; expected a name in quotes");
      return {};
    }
    out.push_back(value.get<std::string>());
  }
  return out;
}

std::size_t ConfigReader::choose(const char* key, const std::vector<std::string_view>& names) {
  const json* value = get(key);
  if (!value) return names.size();
  const auto found =
      value->is_string() ? std::find(names.begin(), names.end(), value->get_ref<const std::string&>()) : names.end();
  if (found == names.end()) {
    fail_found(key, value->is_string() ? "unknown-value" : "wrong-type", "expected one of these: " + join(names));
  }
  return static_cast<std::size_t>(found - names.begin());
}

Activation ConfigReader::activation(const char* key, Activation fallback) {
  return choice<Activation>(key, fallback,
                            {{"silu", Activation::silu},
                             {"swish", Activation::silu},
                             {"gelu", Activation::gelu},
                             {"gelu_pytorch_tanh", Activation::gelu_tanh},
                             {"gelu_new", Activation::gelu_new},
                             {"relu2", Activation::relu2},
                             {"quick_gelu", Activation::quick_gelu},
                             {"relu", Activation::relu},
                             {"tanh", Activation::tanh},
                             {"sigmoid", Activation::sigmoid}});
}

ConfigReader ConfigReader::object(const char* key) {
  return ConfigReader(find(key), pointer_to(key), mode_, findings_);
}

void ConfigReader::ignore(std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) get(key);
}

void ConfigReader::refuse(const char* key, const char* why) {
  const json* value = get(key);
  if (value && !is_unset(*value)) fail_found(key, "not-modelled", why);
}

namespace {

/// Of a key that is none of those that were read, some of them twice.
[[gnu::noinline]] std::string unknown_key(const std::string& key, const std::vector<std::string_view>& known) {
  std::vector<std::string_view> keys;
  for (const std::string_view one : known)
    if (std::find(keys.begin(), keys.end(), one) == keys.end()) keys.push_back(one);
  const std::string_view near = closest(key, keys);
  return "found the unknown key " + quote(key) + "; " +
         (near.empty() ? "the keys here are: " + join(keys) : "did you mean \"" + std::string(near) + "\"?");
}

}  // namespace

void ConfigReader::finish() {
  if (!object_) return;
  for (const auto& [key, value] : object_->items()) {
    if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
    if (mode_ == Mode::strict) {
      fail(key.c_str(), "unknown-key", unknown_key(key, known_));
    } else if (!is_one_of(key, std::begin(kHarmless), std::end(kHarmless)) &&
               !(is_one_of(key, std::begin(kHarmlessIfUnset), std::end(kHarmlessIfUnset)) && is_unset(value))) {
      findings_.unmodelled.push_back({pointer_to(key) + ": " + describe(value) + " is not modelled"});
    }
  }
}

}  // namespace oometer
