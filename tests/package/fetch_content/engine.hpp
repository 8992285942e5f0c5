// A library's own header, with memsaver in it.
#pragma once

#include <memsaver/saver/saver.hpp>

#include <cstddef>

/// Memory of a model's that can step aside.
class Engine {
public:
    explicit Engine(std::size_t bytes);
    [[nodiscard]] std::size_t step_aside();
    [[nodiscard]] std::size_t come_back();

private:
    memsaver::MemorySaver<memsaver::AnyDriver> saver_;
    memsaver::Buffer<unsigned char> weights_;
};
