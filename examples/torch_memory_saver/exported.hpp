// Marks the exported symbols of the libraries; all others are hidden.
#pragma once

#define TMS_EXPORTED extern "C" [[gnu::visibility("default")]]
