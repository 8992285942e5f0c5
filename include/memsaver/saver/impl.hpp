// The definitions of saver/, for one file of a program: see memsaver/impl.hpp.
#pragma once

#include "memsaver/saver/saver.hpp"

#include "memsaver/saver/arena_handle.ipp"
#include "memsaver/saver/arrival.ipp"
#include "memsaver/saver/elastic.ipp"
#include "memsaver/saver/gate.ipp"
#include "memsaver/saver/registrations.ipp"
#include "memsaver/saver/saver_core.ipp"
#include "memsaver/saver/use.ipp"
#include "memsaver/saver/use_options.ipp"
