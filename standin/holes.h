#pragma once

#include <cstddef>

/// Mapped files of weights that are not there (python/oometer/run/weights.py), whose bytes nobody needs: a page of one
/// that is read takes room in the host's memory, and so does the device's that it is copied to.
namespace standin {

/// Whether a pointer lies in such a file.
bool in_hole(const void* pointer);

}  // namespace standin
