// Marks what the libraries show; everything else is hidden.
#pragma once

#define TMS_EXPORTED extern "C" [[gnu::visibility("default")]]
