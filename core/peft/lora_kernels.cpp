#include "peft/lora_kernels.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "nn/linear4bit.h"
#include "ops/ops.h"
#include "peft/lora.h"
#include "tensor/kernel.h"
#include "tensor/node.h"

namespace oometer {

namespace {

Tensor as_rows(const Tensor& x) { return reshape(x, {x.numel() / x.size(-1), x.size(-1)}); }
Tensor transposed(const Tensor& x) { return transpose(x, 0, 1); }

/// get_lora_parameters
struct LoraParameters {
  explicit LoraParameters(const Linear* layer)
      : base(layer),
        A(layer->wrapper->as_lora()->adapter().lora_A()),
        B(layer->wrapper->as_lora()->adapter().lora_B()) {}

  const Linear* base;
  Tensor A, B;
};

/// _apply_dropout: null where nothing is dropped.
Tensor apply_dropout(const Linear& layer, const Tensor& x) {
  const LoraAdapter& adapter = layer.wrapper->as_lora()->adapter();
  return adapter.config().dropout > 0 && x.context().training ? adapter.dropout(x) : Tensor();
}

/// dequantize (kernels/quantize.py): a weight as it is, [out, in], or a copy made of its 4 bits.
Tensor dequantized(const Linear& base) {
  if (!base.quantized) return base.weight;
  Context& context = base.weight.context();
  Tensor out = empty(context, Op::dequantize, base.quantized->shape, base.quantized->dtype);
  const Tensor out_absmax = empty(context, Op::dequantize, {base.quantized->blocks()}, DType::float32);
  return out;
}

/// out.addmm_(a, b), whatever alpha and beta.
void addmm_(const Tensor& out, const Tensor& a, const Tensor& b) {
  const GemmWorkspace workspace(out.context());
  gemm_kernel(Op::addmm, a, b, out);
}

/// matmul_lora, of rows: X W + s X_lora A B + b.
Tensor matmul_lora(const Tensor& x, const Linear& base, const Tensor& A, const Tensor& B, const Tensor& x_lora) {
  Tensor out;
  {
    const Tensor weight = dequantized(base);
    out = matmul(x, transposed(weight));
  }
  const Tensor a = to(transposed(A), x.dtype()), b = to(transposed(B), x.dtype());
  {
    const Tensor inner = matmul(x_lora, a);
    addmm_(out, inner, b);
  }
  if (base.bias) add_(out, base.bias);
  return out;
}

/// What a projection's gradient is for its adapter: d_A and d_B as parameters have them, and grad @ B, which the
/// input's gradient takes again.
struct AdapterGradients {
  AdapterGradients(const Tensor& grad, const Tensor& x_lora, const Tensor& A, const Tensor& B) : of_B(matmul(grad, B)) {
    const Tensor d_A_t = empty_like(Op::empty, transposed(A)), d_B_t = empty_like(Op::empty, transposed(B));
    addmm_(d_A_t, transposed(x_lora), of_B);
    {
      const Tensor inner = matmul(A, transposed(x_lora));
      addmm_(d_B_t, inner, grad);
    }
    d_A = transposed(d_A_t);
    d_B = transposed(d_B_t);
  }

  Tensor of_B, d_A, d_B;
};

void save_in_dtype(Record& record, const LoraParameters& layer, DType dtype) {
  record.save(to(layer.A, dtype));
  record.save(to(layer.B, dtype));
}

/// The gradient of the base layers' input: dX = mm(grad, W), then dX.addmm_ of each further one.
void add_base(Tensor& dX, const Tensor& grad, const Linear& base) {
  const Tensor weight = dequantized(base);
  if (dX)
    addmm_(dX, grad, weight);
  else
    dX = matmul(grad, weight);
}

Tensor like(const Tensor& rows, const Tensor& x) { return view(rows, x.sizes()); }

/// The edges of a function, in the order of its arguments; no dropout, no second one.
std::vector<Tensor> inputs_of(const Tensor& x, const Tensor& x_drop, std::span<const LoraParameters> layers) {
  std::vector<Tensor> inputs{x};
  if (x_drop) inputs.push_back(x_drop);
  for (const LoraParameters& layer : layers) {
    inputs.push_back(layer.A);
    inputs.push_back(layer.B);
  }
  return inputs;
}

}  // namespace

// No first answer asks: the names stay out of the module's first part.
[[gnu::noinline]] bool has_lora_kernels(std::string_view class_name) {
  constexpr std::string_view kCompared[] = {
      "ApertusForCausalLM",
      "ArceeForCausalLM",
      "Cohere2ForCausalLM",
      "Ernie4_5ForCausalLM",
      "Exaone4ForCausalLM",
      "Gemma2ForCausalLM",
      "Gemma3ForCausalLM",
      "Gemma3ForConditionalGeneration",
      "GemmaForCausalLM",
      "Glm4ForCausalLM",
      "GlmForCausalLM",
      "GptOssForCausalLM",
      "GraniteForCausalLM",
      "GraniteMoeForCausalLM",
      "HeliumForCausalLM",
      "HunYuanDenseV1ForCausalLM",
      "LlamaForCausalLM",
      "Ministral3ForCausalLM",
      "MinistralForCausalLM",
      "Mistral3ForConditionalGeneration",
      "MistralForCausalLM",
      "MixtralForCausalLM",
      "NemotronForCausalLM",
      "Qwen2ForCausalLM",
      "Qwen2MoeForCausalLM",
      "Qwen3ForCausalLM",
      "Qwen3MoeForCausalLM",
      "Qwen3NextForCausalLM",
      "Qwen3VLForConditionalGeneration",
      "Qwen3_5ForCausalLM",
      "Qwen3_5ForConditionalGeneration",
      "Qwen3_5MoeForCausalLM",
      "Qwen3_5MoeForConditionalGeneration",
      "SmolLM3ForCausalLM",
      "Starcoder2ForCausalLM",
  };
  return std::find(std::begin(kCompared), std::end(kCompared), class_name) != std::end(kCompared);
}

// LoRA_QKV
void lora_qkv(const Tensor& x, std::span<const Linear* const> linears, std::span<Tensor> results) {
  const std::vector<LoraParameters> layers(linears.begin(), linears.end());
  const Tensor x_drop = apply_dropout(*linears.front(), x);
  Record record(Op::lora_qkv, nullptr, inputs_of(x, x_drop, layers));
  {
    const NoGrad no_grad(x.context());
    const Tensor rows = as_rows(x), dropped = x_drop ? as_rows(x_drop) : rows;
    for (std::size_t i = 0; i < layers.size(); ++i) {
      const LoraParameters& its = layers[i];
      const Tensor out = matmul_lora(rows, *its.base, its.A, its.B, dropped);
      results[i] = view(out, {x.size(0), x.size(1), out.size(-1)});
    }
    record.save(x);
    record.save(x_drop ? x_drop : x);
    for (const LoraParameters& its : layers) save_in_dtype(record, its, x.dtype());
  }
  if (record)
    record->custom = std::make_unique<std::function<void(Backward&)>>([layers, drops = bool(x_drop)](Backward& b) {
      const Tensor &input = b.saved(0), x_rows = as_rows(input), x_lora = as_rows(b.saved(1));
      const unsigned first = drops ? 2 : 1;
      std::vector<Tensor> grads;
      for (unsigned i = 0; i < layers.size(); ++i) grads.push_back(as_rows(b.grad(i)));
      std::vector<AdapterGradients> of;
      for (unsigned i = 0; i < layers.size(); ++i)
        of.emplace_back(grads[i], x_lora, b.saved(2 + 2 * i), b.saved(3 + 2 * i));
      Tensor grad_x, grad_x_drop;
      for (unsigned i = 0; i < layers.size(); ++i) add_base(grad_x, grads[i], *layers[i].base);
      if (drops) grad_x_drop = empty_like(Op::zeros_like, x_lora);
      for (unsigned i = 0; i < layers.size(); ++i) addmm_(drops ? grad_x_drop : grad_x, of[i].of_B, b.saved(2 + 2 * i));
      b.grads.clear();  // the call's arguments
      b.give(0, like(grad_x, input));
      if (drops) b.give(1, like(grad_x_drop, input));
      for (unsigned i = 0; i < layers.size(); ++i) {
        b.give(first + 2 * i, of[i].d_A);
        b.give(first + 2 * i + 1, of[i].d_B);
      }
    });
  for (Tensor& result : results) result = record.output(std::move(result));
}

// LoRA_O
Tensor lora_o(const Tensor& x, const Linear& o_proj) {
  const LoraParameters layer(&o_proj);
  const Tensor x_drop = apply_dropout(o_proj, x);
  Record record(Op::lora_o, nullptr, inputs_of(x, x_drop, {&layer, 1}));
  Tensor result;
  {
    const NoGrad no_grad(x.context());
    const Tensor rows = as_rows(x), dropped = x_drop ? as_rows(x_drop) : rows;
    result = matmul_lora(rows, o_proj, layer.A, layer.B, dropped);
    result = view(result, {x.size(0), x.size(1), result.size(-1)});
    save_in_dtype(record, layer, x.dtype());
    record.save(x);
    record.save(x_drop ? x_drop : x);
  }
  if (record)
    record->custom = std::make_unique<std::function<void(Backward&)>>([layer, drops = bool(x_drop)](Backward& b) {
      const Tensor &A = b.saved(0), &B = b.saved(1), &input = b.saved(2);
      const Tensor grad = as_rows(b.grad()), rows = as_rows(input), x_lora = as_rows(b.saved(3));
      const AdapterGradients of(grad, x_lora, A, B);
      Tensor dX, dX_drop;
      add_base(dX, grad, *layer.base);
      if (drops)
        dX_drop = mul_scalar(matmul(of.of_B, A));
      else
        addmm_(dX, of.of_B, A);
      b.grads.clear();
      b.give(0, like(dX, input));
      if (drops) b.give(1, like(dX_drop, input));
      b.give(drops ? 2 : 1, of.d_A);
      b.give(drops ? 3 : 2, of.d_B);
    });
  return record.output(std::move(result));
}

// LoRA_MLP
Tensor lora_mlp(const Tensor& x, const Linear& gate_proj, const Linear& up_proj, const Linear& down_proj) {
  const std::vector<LoraParameters> layers{LoraParameters(&gate_proj), LoraParameters(&up_proj),
                                           LoraParameters(&down_proj)};
  const LoraParameters &its_gate = layers[0], &its_up = layers[1], &its_down = layers[2];
  const Tensor x_drop = apply_dropout(gate_proj, x);
  Record record(Op::lora_mlp, nullptr, inputs_of(x, x_drop, layers));
  Tensor output;
  {
    const NoGrad no_grad(x.context());
    const Tensor rows = as_rows(x), dropped = x_drop ? as_rows(x_drop) : rows;
    const auto whole = [&](const Tensor& of_rows) { return view(of_rows, {x.size(0), x.size(1), of_rows.size(-1)}); };
    const Tensor gate = whole(matmul_lora(rows, gate_proj, its_gate.A, its_gate.B, dropped));
    const Tensor up = whole(matmul_lora(rows, up_proj, its_up.A, its_up.B, dropped));
    const Tensor hidden = empty(x.context(), Op::empty, gate.sizes(), gate.dtype());  // swiglu_forward
    kernel(Op::mul, {&gate, &up}, hidden);
    const Tensor hidden_rows = as_rows(hidden);
    output = whole(matmul_lora(hidden_rows, down_proj, its_down.A, its_down.B, hidden_rows));
    record.save(x);
    record.save(x_drop ? x_drop : x);
    record.save(gate);
    record.save(up);
    for (const LoraParameters& its : layers) save_in_dtype(record, its, x.dtype());
  }
  if (record)
    record->custom = std::make_unique<std::function<void(Backward&)>>([layers, drops = bool(x_drop)](Backward& b) {
      const Tensor &input = b.saved(0), grad = as_rows(b.grad()), rows = as_rows(input), x_lora = as_rows(b.saved(1)),
                   grad_gate = as_rows(b.saved(2)), grad_up = as_rows(b.saved(3));
      const Tensor &gate_A = b.saved(4), &gate_B = b.saved(5), &up_A = b.saved(6), &up_B = b.saved(7),
                   &down_A = b.saved(8), &down_B = b.saved(9);
      Tensor h;  // grad_down, over which the activation's backward writes the activation itself
      {
        const Tensor weight = dequantized(*layers[2].base);
        h = matmul(grad, weight);
      }
      {
        const Tensor inner = matmul(grad, down_B);
        addmm_(h, inner, down_A);
      }
      kernel(Op::mul, {&h, &grad_gate, &grad_up}, h);  // and the two gradients over gate and up
      kernel(Op::mul, {&h}, grad_gate);
      kernel(Op::mul, {&h}, grad_up);
      const AdapterGradients of_down(grad, h, down_A, down_B), of_up(grad_up, x_lora, up_A, up_B),
          of_gate(grad_gate, x_lora, gate_A, gate_B);
      Tensor dX, dX_drop;
      if (b.wants(0)) {
        add_base(dX, grad_up, *layers[1].base);
        add_base(dX, grad_gate, *layers[0].base);
        if (drops) dX_drop = empty_like(Op::zeros_like, x_lora);
        addmm_(drops ? dX_drop : dX, of_up.of_B, up_A);
        addmm_(drops ? dX_drop : dX, of_gate.of_B, gate_A);
        b.give(0, like(dX, input));
        if (drops) b.give(1, like(dX_drop, input));
      }
      b.grads.clear();
      unsigned next = drops ? 2 : 1;
      for (const AdapterGradients* of : {&of_gate, &of_up, &of_down}) {
        b.give(next++, of->d_A);
        b.give(next++, of->d_B);
      }
    });
  return record.output(std::move(output));
}

// LoRATritonFunction
Tensor automodel_lora(const Tensor& x, const Linear& linear, const Tensor& result, bool by_triton) {
  const LoraParameters layer(&linear);
  Record record(Op::lora_o, nullptr, {&x, &layer.A, &layer.B, &result});
  Tensor output;
  {
    const NoGrad no_grad(x.context());
    const Tensor rows = as_rows(x), base = as_rows(result);
    if (by_triton) {  // lora_forward_wrapper
      output = empty(x.context(), Op::empty, {rows.size(0), base.size(1)}, x.dtype());
      kernel(Op::addmm, {&rows, &layer.A, &layer.B}, output);
    } else {
      const Tensor scaled = mul_scalar(matmul(rows, transposed(layer.A)));
      output = matmul(scaled, transposed(layer.B));
    }
    kernel(Op::add, {&output, &base}, output);
    record.save(x);
    record.save(layer.A);
    record.save(layer.B);
  }
  if (record)
    record->custom = std::make_unique<std::function<void(Backward&)>>([by_triton](Backward& b) {
      const Tensor &x_in = b.saved(0), &A = b.saved(1), &B = b.saved(2);
      const Tensor rows = as_rows(x_in), d_y = as_rows(b.grad());
      Tensor d_x, d_A, d_B;
      if (by_triton) {
        d_x = empty(b.context, Op::empty, rows.sizes(), x_in.dtype());
        {
          const Tensor dyb = empty(b.context, Op::empty, {rows.size(0), A.size(0)}, x_in.dtype());
          kernel(Op::addmm, {&d_y, &A, &B}, d_x);
          d_A = transposed(matmul(transposed(rows), dyb));
        }
        const Tensor axt = empty(b.context, Op::empty, {A.size(0), rows.size(0)}, x_in.dtype());
        kernel(Op::addmm, {&A, &rows}, axt);
        d_B = transposed(matmul(axt, d_y));
      } else {
        const Tensor d_y_lora_B = matmul(d_y, B);
        if (b.wants(0)) d_x = matmul(d_y_lora_B, A);
        d_A = matmul(transposed(d_y_lora_B), rows);
        const Tensor x_lora_A = matmul(rows, transposed(A));
        d_B = matmul(transposed(d_y), x_lora_A);
      }
      if (b.wants(0)) b.give(0, like(d_x, x_in));
      b.give(1, d_A);
      b.give(2, d_B);
      if (b.wants(3)) b.give(3, view(d_y, b.input_sizes(3)));
    });
  return view(record.output(std::move(output)), result.sizes());
}

namespace {

/// scale * product, and the product goes.
Tensor scaled_matmul(const Tensor& a, const Tensor& b) { return mul_scalar(matmul(a, b)); }

/// F.linear(x, W), to which the adapter's part is added in place.
Tensor adapted(const Tensor& x, const LoraParameters& layer) {
  Tensor out = matmul(x, transposed(layer.base->weight));
  const Tensor inner = scaled_matmul(x, transposed(layer.A));
  addmm_(out, inner, transposed(layer.B));
  return out;
}

/// torch.addmm(a @ b, c, d)
Tensor addmm(const Tensor& a, const Tensor& b, const Tensor& c, const Tensor& d) {
  const Tensor product = matmul(a, b);
  Tensor out = empty_like(Op::addmm, product);
  addmm_(out, c, d);
  return out;
}

}  // namespace

// LoRASwiGLUMLPFunction
Tensor automodel_lora_mlp(const Tensor& x, const Linear& gate_proj, const Linear& up_proj, const Linear& down_proj) {
  const std::vector<LoraParameters> layers{LoraParameters(&gate_proj), LoraParameters(&up_proj),
                                           LoraParameters(&down_proj)};
  Record record(Op::lora_mlp, nullptr, inputs_of(x, {}, layers));
  Tensor output;
  {
    const NoGrad no_grad(x.context());
    const Tensor rows = as_rows(x), gate = adapted(rows, layers[0]), up = adapted(rows, layers[1]);
    const Tensor hidden = empty_like(Op::empty, gate);
    kernel(Op::mul, {&gate, &up}, hidden);
    output = adapted(hidden, layers[2]);
    Shape sizes = x.sizes();
    sizes[-1] = output.size(-1);
    output = view(output, sizes);
    record.save(rows);
    record.save(gate);
    record.save(up);
    for (const LoraParameters& its : layers) {
      record.save(its.A);
      record.save(its.B);
    }
  }
  if (record)
    record->custom = std::make_unique<std::function<void(Backward&)>>([layers, sizes = x.sizes()](Backward& b) {
      const Tensor &x_in = b.saved(0), &e = b.saved(1), &g = b.saved(2), &gate_A = b.saved(3), &gate_B = b.saved(4),
                   &up_A = b.saved(5), &up_B = b.saved(6), &down_A = b.saved(7), &down_B = b.saved(8);
      const Tensor d_y = as_rows(b.grad());
      const Tensor d_P = scaled_matmul(d_y, down_B);
      const Tensor h = addmm(d_y, layers[2].base->weight, d_P, down_A);
      for (const Tensor* in_place : {&h, &e, &g}) kernel(Op::mul, {&h, &e, &g}, *in_place);
      const Tensor P = matmul(h, transposed(down_A));
      const Tensor d_down_B = scaled_matmul(transposed(d_y), P), d_down_A = matmul(transposed(d_P), h);
      const Tensor Q = matmul(x_in, transposed(up_A));
      const Tensor d_up_B = scaled_matmul(transposed(e), Q), d_Q = scaled_matmul(e, up_B);
      const Tensor d_up_A = matmul(transposed(d_Q), x_in);
      const Tensor R = matmul(x_in, transposed(gate_A));
      const Tensor d_gate_B = scaled_matmul(transposed(g), R), d_R = scaled_matmul(g, gate_B);
      const Tensor d_gate_A = matmul(transposed(d_R), x_in);
      if (b.wants(0)) {
        const Tensor d_x = addmm(g, layers[0].base->weight, d_R, gate_A);
        addmm_(d_x, e, layers[1].base->weight);
        addmm_(d_x, d_Q, up_A);
        b.give(0, view(d_x, sizes));
      }
      unsigned next = 1;
      for (const Tensor* of : {&d_gate_A, &d_gate_B, &d_up_A, &d_up_B, &d_down_A, &d_down_B}) b.give(next++, *of);
    });
  return record.output(std::move(output));
}

}  // namespace oometer
