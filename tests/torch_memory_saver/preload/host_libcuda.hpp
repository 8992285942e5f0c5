// What the tests ask of the stand-in for the driver, besides what every driver answers.
#pragma once

extern "C" {
/// How often cuMemAlloc has been called.
unsigned long host_libcuda_plain_calls();
}
