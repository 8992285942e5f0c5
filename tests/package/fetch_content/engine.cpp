#include "engine.hpp"

#include <memsaver/host/host.hpp>

Engine::Engine(std::size_t bytes)
    : saver_{memsaver::HostDriver{2 * bytes}}, weights_{saver_.arena("weights", memsaver::Discard{}), bytes} {}

std::size_t Engine::step_aside() { return saver_.pause().released_bytes; }

std::size_t Engine::come_back() { return saver_.resume().mapped_bytes; }
