// Products.
#include <algorithm>

#include "graph/operators/table.h"
#include "ops/experts.h"
#include "ops/masks.h"
#include "ops/ops.h"
#include "ops/vision.h"

namespace oometer {
namespace {

void k_linear(GraphCall& c) {
  const Tensor x = c.tensor(0), weight = c.tensor(1), bias = c.tensor(2);
  if (!has_dims(c, x, 1) || !has_dims(c, weight, 2, 2)) return;
  if (x.size(-1) != weight.size(1) || (bias && (bias.ndim() != 1 || bias.size(0) != weight.size(0))))
    return c.fail("an input of " + text_of(x.sizes()) + " and a weight of " + text_of(weight.sizes()));
  if (x.ndim() > 1) return c.give(linear(x, weight, bias));
  c.fail("an input of one dimension");
}

void k_matmul(GraphCall& c) {
  const Tensor a = c.tensor(0), b = c.tensor(1);
  bool fits = a.ndim() >= 2 && (b.ndim() == 2 || b.ndim() == a.ndim()) && a.size(-1) == b.size(-2);
  for (int i = 3; fits && i <= b.ndim(); ++i) fits = a.size(-i) == b.size(-i);
  if (!fits) return c.fail("factors of " + text_of(a.sizes()) + " and " + text_of(b.sizes()));
  c.give(matmul(a, b));
}

void k_addmm(GraphCall& c) {
  const Tensor bias = c.tensor(0), a = c.tensor(1), b = c.tensor(2);
  if (!has_dims(c, a, 2, 2) || !has_dims(c, b, 2, 2) || bias.ndim() != 1 || a.size(1) != b.size(0) ||
      bias.size(0) != b.size(1))
    return c.fail("factors of " + text_of(a.sizes()) + " and " + text_of(b.sizes()));
  c.give(linear(a, transpose(b, 0, 1), bias));
}

/// A product a group: x [tokens, k], matrices [groups, k, n], of which a transposed weight is the usual form.
void k_grouped_mm(GraphCall& c) {
  const Tensor x = c.tensor(0), matrices = c.tensor(1), offsets = c.tensor(2);
  if (c.has(3) || !has_dims(c, x, 2, 2) || !has_dims(c, matrices, 3, 3) || x.size(1) != matrices.size(1))
    return c.fail("factors of " + text_of(x.sizes()) + " and " + text_of(matrices.sizes()));
  if (matrices.is_contiguous()) return c.give(grouped_mm_by_rows(x, matrices, offsets));
  c.give(grouped_mm(x, transpose(matrices, 1, 2), offsets));
}

/// (self, B, upper, left, unitriangular)
void k_solve_triangular(GraphCall& c) {
  const Tensor a = c.tensor(0), b = c.tensor(1);
  bool fits = a.ndim() >= 2 && a.ndim() == b.ndim() && a.size(-1) == a.size(-2) && a.size(-1) == b.size(-2);
  for (int i = 0; fits && i < a.ndim() - 2; ++i) fits = a.size(i) == b.size(i);
  constexpr std::int64_t kMagma = 512;  // larger ones are MAGMA's
  if (!fits || !c.boolean(3, true) || a.size(-1) > kMagma)
    return c.fail("a system of " + text_of(a.sizes()) + " for " + text_of(b.sizes()));
  c.give(solve_triangular(a, b));
}

/// Two operands, each letter once in each: one batched product of them. One operand, all of whose letters stay: a view
/// of it.
void k_einsum(GraphCall& c) {
  const std::vector<Tensor> operands = c.tensors(1);
  std::string equation;
  for (const char letter : c.text(0))
    if (letter != ' ') equation += letter;
  const std::size_t comma = equation.find(','), arrow = equation.find("->");
  if (operands.size() == 1 && arrow != std::string::npos) {
    const std::string from = equation.substr(0, arrow), to = equation.substr(arrow + 2);
    Shape order;
    unsigned seen = 0;
    for (std::size_t i = 0; i < to.size() && to.size() <= Shape::kMaxDims; ++i) {
      const std::size_t at = from.find(to[i]);
      if (at == std::string::npos) break;
      order.push_back(static_cast<std::int64_t>(at));
      seen |= 1U << at;
    }
    const int dims = operands[0].ndim();
    if (static_cast<int>(from.size()) != dims || order.ndim() != dims || seen + 1 != 1U << static_cast<unsigned>(dims))
      return c.fail("an equation that is no permutation: " + equation.substr(0, 40));
    return c.give(permute(operands[0], order));
  }
  if (operands.size() != 2 || comma == std::string::npos || arrow == std::string::npos || comma > arrow)
    return c.fail("an equation that is no product of two: " + equation.substr(0, 40));
  const std::string a = equation.substr(0, comma), b = equation.substr(comma + 1, arrow - comma - 1);
  const std::string out = equation.substr(arrow + 2);
  const Tensor x = operands[0], y = operands[1];
  const auto once_each = [](const std::string& letters) {
    for (std::size_t i = 0; i < letters.size(); ++i)
      if (letters.find(letters[i]) != i || letters[i] < 'A') return false;
    return letters.size() <= Shape::kMaxDims;
  };
  if (!once_each(a) || !once_each(b) || !once_each(out) || x.ndim() != static_cast<int>(a.size()) ||
      y.ndim() != static_cast<int>(b.size()))
    return c.fail("an equation that is no batched product: " + equation.substr(0, 40));
  // Letters of both and the result, of one and the result, of both alone; in the result's order.
  std::string both, left, right, summed;
  const auto is_in = [](const std::string& letters, char letter) { return letters.find(letter) != std::string::npos; };
  for (const char letter : out) (is_in(a, letter) ? is_in(b, letter) ? both : left : right) += letter;
  for (const char letter : a)
    if (!is_in(out, letter)) summed += letter;
  bool fits = true;
  for (const char letter : b) {
    fits = fits && (is_in(a, letter) || is_in(out, letter));
    if (is_in(a, letter))
      fits = fits && x.size(static_cast<int>(a.find(letter))) == y.size(static_cast<int>(b.find(letter)));
  }
  for (const char letter : summed + right) fits = fits && is_in(b, letter);
  if (!fits || summed.empty())
    return c.fail("an equation that is no batched product of " + text_of(x.sizes()) + " and " + text_of(y.sizes()) +
                  ": " + equation.substr(0, 40));
  c.give(einsum(a, b, out, x, y));
}

// In alphabetical order.
constexpr AtenOperator kMatmul[] = {
    {"_grouped_mm", "ttt!od", k_grouped_mm},
    {"addmm", "ttt!", k_addmm},
    {"bmm", "tt!", k_matmul},
    {"einsum", "sL!_", k_einsum},
    {"linalg_solve_triangular", "ttb!bb", k_solve_triangular},
    {"linear", "tt!o", k_linear},
    {"matmul", "tt!", k_matmul},
    {"mm", "tt!", k_matmul},
};

}  // namespace

const std::span<const AtenOperator> matmul_operators(kMatmul);

}  // namespace oometer
