#include <algorithm>
#include <string>
#include <utility>

#include "ops/ops.h"
#include "ops/vision.h"

namespace oometer {

Tensor einsum(std::string a, std::string b, const std::string& out, const Tensor& first, const Tensor& second) {
  // einsum itself is of the lower_precision_fp list; what it casts is there until it returns.
  const Tensor cast_first = autocast_lower(first), cast_second = autocast_lower(second);
  Tensor x = cast_first, y = cast_second;
  const auto is_in = [](const std::string& letters, char letter) { return letters.find(letter) != std::string::npos; };
  // Letters of both and the result, of one and the result, of both alone; in the result's order.
  std::string both, left, right, summed;
  for (const char letter : out) (is_in(a, letter) ? is_in(b, letter) ? both : left : right) += letter;
  for (const char letter : a)
    if (!is_in(out, letter)) summed += letter;
  std::sort(summed.begin(), summed.end());
  if (!left.empty() && !right.empty() && out.find(right.back()) < out.find(left.front())) {
    std::swap(a, b);
    std::swap(x, y);
    std::swap(left, right);
  }
  const auto order_of = [](const std::string& letters, const std::string& wanted) {
    Shape order;
    for (const char letter : wanted) order.push_back(static_cast<std::int64_t>(letters.find(letter)));
    return order;
  };
  const auto product_of = [](const Tensor& tensor, const std::string& letters, const std::string& wanted) {
    std::int64_t product = 1;
    for (const char letter : wanted)
      product = checked_product(product, tensor.size(static_cast<int>(letters.find(letter))));
    return product;
  };
  const std::int64_t batch = product_of(x, a, both), inner = product_of(x, a, summed);
  const std::int64_t rows = product_of(x, a, left), columns = product_of(y, b, right);
  Shape sizes;
  for (const char letter : both + left) sizes.push_back(x.size(static_cast<int>(a.find(letter))));
  for (const char letter : right) sizes.push_back(y.size(static_cast<int>(b.find(letter))));
  x = reshape(permute(x, order_of(a, both + left + summed)), {batch, rows, inner});
  y = reshape(permute(y, order_of(b, both + summed + right)), {batch, inner, columns});
  return permute(reshape(bmm(x, y), sizes), order_of(both + left + right, out));
}

}  // namespace oometer
