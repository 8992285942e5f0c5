// A library's own header, which includes memsaver.
#pragma once

#include <memsaver/saver/saver.hpp>

#include <cstddef>

/// The memory of a model, which can be paused.
class Engine {
public:
    explicit Engine(std::size_t bytes);
    [[nodiscard]] std::size_t step_aside();
    [[nodiscard]] std::size_t come_back();

private:
    memsaver::MemorySaver<memsaver::AnyDriver> saver_;
    memsaver::Buffer<unsigned char> weights_;
};
