/* SPDX-License-Identifier: MIT */
/** @file engine.hpp
 *  Engines for C++17: all of libloch_engine, and what loch/tensor.hpp has.
 *
 *      loch::engine engine({"cuda:0", "cuda:1"});
 *      loch::context context(engine);
 */
#ifndef LOCH_ENGINE_HPP
#define LOCH_ENGINE_HPP

#include <loch/tensor.hpp>

#if LOCH_CPP
#include <loch/engine.h>

#include <loch/cpp/workers.hpp>
#include <loch/cpp/stream_pool.hpp>
#include <loch/cpp/timeline.hpp>
#include <loch/cpp/profile.hpp>
#include <loch/cpp/scratch.hpp>
#include <loch/cpp/library.hpp>
#include <loch/cpp/engine.hpp>
#include <loch/cpp/context.hpp>
#endif

#endif
