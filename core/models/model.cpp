#include "models/model.h"

#include "graph/model.h"
#include "models/clip/clip.h"
#include "models/deepseek/deepseek.h"
#include "models/idefics3/idefics3.h"
#include "models/llama/llama.h"
#include "models/llava/llava.h"
#include "models/nanovlm/nanovlm.h"
#include "models/qwen2_vl/qwen2_vl.h"

namespace oometer {

std::unique_ptr<Model> build_model(Context& context, const ModelConfig& config, const DataConfig& data,
                                   const ModelOptions& options) {
  struct Build {
    Context& context;
    const DataConfig& data;
    const ModelOptions& options;
    std::unique_ptr<Model> operator()(const LlamaConfig& c) const { return build_llama(context, c, data, options); }
    std::unique_ptr<Model> operator()(const ClipConfig& c) const { return build_clip(context, c, data, options); }
    std::unique_ptr<Model> operator()(const ClipVisionConfig& c) const {
      return build_clip_vision(context, c, data, options);
    }
    std::unique_ptr<Model> operator()(const Idefics3Config& c) const {
      return build_idefics3(context, c, data, options);
    }
    std::unique_ptr<Model> operator()(const DeepseekConfig& c) const {
      return build_deepseek(context, c, data, options);
    }
    std::unique_ptr<Model> operator()(const GraphConfig& c) const { return build_graph(context, c, data, options); }
    std::unique_ptr<Model> operator()(const LlavaConfig& c) const { return build_llava(context, c, data, options); }
    std::unique_ptr<Model> operator()(const NanoVlmConfig& c) const { return build_nanovlm(context, c, data, options); }
    std::unique_ptr<Model> operator()(const QwenVLConfig& c) const { return build_qwen_vl(context, c, data, options); }
  };
  std::unique_ptr<Model> model = std::visit(Build{context, data, options}, config);
  sort_by_module(model->parameters);
  return model;
}

}  // namespace oometer
