#include "models/family.h"

#include <algorithm>
#include <string>

#include "config/reader.h"
#include "models/reversible_resnet/reversible_resnet.h"
#include "models/sizes.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"reversible_resnet", "ReversibleResNetForSpeakerClassification"}};
constexpr const char* kBlocks[] = {"BasicBlock", "ReversibleBlock"};

FamilyConfig read(ConfigReader& reader, const ModelClass& of, Framework) {
  constexpr std::size_t kMostStages = 6;
  ReversibleResNetConfig c;
  c.class_name = of.class_name;
  c.head = EncoderHead::sequence_classification;
  c.num_labels = read_num_labels(reader);
  c.feat_dim = reader.integer("feat_dim", c.feat_dim, {1, 1 << 16});
  c.m_channels = reader.integer("m_channels", c.m_channels, {2, 1 << 12});
  c.embed_dim = reader.integer("embed_dim", c.embed_dim, {1, 1 << 20});
  if (const auto blocks = reader.integers("num_blocks", {1, 1024}); !blocks.empty()) c.num_blocks = blocks;
  if (c.m_channels % 2 != 0)
    reader.fail_found("m_channels", "inconsistent",
                      "expected an even number: a reversible block splits its channels in two");
  if (c.num_blocks.size() > kMostStages)
    reader.fail_found("num_blocks", "not-modelled",
                      "more than " + std::to_string(kMostStages) + " stages are not supported yet");
  c.hidden_size = c.embed_dim;
  reader.findings().assumptions.emplace_back(kReversibleResNetAssumption);
  return c;
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_reversible_resnet(context, config.as<ReversibleResNetConfig>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<ReversibleResNetConfig>();
  ModelTraits t = transformers_traits(c.class_name);
  t.oldest_transformers = {5, 23, 0};
  t.min_audios = t.max_audios = 1;
  t.usual_audio_seconds = 2;
  t.hidden_size = c.hidden_size;
  t.convolutions = 1;
  for (const std::int64_t blocks : c.num_blocks) t.convolutions += 4 * blocks;
  for (const Feature feature : {Feature::deepspeed, Feature::zero3, Feature::fsdp, Feature::lengths, Feature::packing,
                                Feature::quantization, Feature::adapters, Feature::inference})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  t.refuse(Feature::checkpointing, "inconsistent", "its blocks keep no activations that checkpointing could spare");
  t.refuse(Feature::flash_attention_2, "inconsistent", t.class_name + " has no attention: leave it out");
  t.refuse(Feature::chunked_cross_entropy, "inconsistent",
           "this is for models that predict the next token, and " + t.class_name + " is none");
  t.has_no_liger();
  return t;
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<ReversibleResNetConfig>();
  const std::int64_t frames = ReversibleResNetConfig::frames(data.audio_seconds),
                     widest = c.planes(c.num_blocks.size() - 1);
  return std::max({2 * bytes_of({data.micro_batch_size, c.m_channels, c.feat_dim, frames}),
                   bytes_of({9 * c.m_channels, c.feat_dim, frames}), bytes_of({widest, widest, 9}),
                   bytes_of({2 * c.rows() * widest, c.embed_dim}), bytes_of({c.embed_dim, c.num_labels}),
                   bytes_of({data.micro_batch_size, c.num_labels})});
}

AudioCount count_audio(const FamilyConfig& config, double seconds) {
  const auto& c = config.as<ReversibleResNetConfig>();
  return {0, std::to_string(ReversibleResNetConfig::frames(seconds)) + " frames of " + std::to_string(c.feat_dim) +
                 " mel bins."};
}

}  // namespace

namespace family {
extern const Family reversible_resnet{.classes = kClasses,
                                      .blocks = kBlocks,
                                      .read = read,
                                      .build = build,
                                      .traits = traits,
                                      .largest_tensor = largest_tensor,
                                      .count_audio = count_audio};
}  // namespace family

}  // namespace oometer
