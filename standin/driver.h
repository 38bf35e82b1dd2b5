#pragma once

namespace standin {

/// libcuda's function of that name; one that says it is not supported where the stand-in has none.
void* driver_function(const char* name);

}  // namespace standin
