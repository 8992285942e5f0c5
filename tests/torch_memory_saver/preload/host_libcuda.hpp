// Functions of the stand-in driver in addition to the driver's own.
#pragma once

extern "C" {
/// Returns the number of cuMemAlloc calls.
unsigned long host_libcuda_plain_calls();
}
