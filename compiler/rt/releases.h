// SPDX-License-Identifier: MIT OR Apache-2.0
// What atomics and fences release and acquire.

#ifndef TALLY_RELEASES_H
#define TALLY_RELEASES_H

#include "cells.h"

// More was released to items of this group than can be remembered.
static void know_all(struct Races *races, const struct Watch *watch) {
  races->all_known = 1;
  drop(watch);
}

// Remembers something that items know.
static void learn(struct Races *races, const struct Watch *watch, struct Point point, uint32_t owner,
                  uint32_t state) {
  for (uint32_t i = 0; i < races->known_count; i++) {
    struct Known *it = &races->known[i];
    bool same = it->point.run == point.run && it->point.item == point.item;
    if (!same || it->owner != owner || it->state != state)
      continue;
    if (point.own >= it->point.own) {
      it->point = point;
      it->learned = (uint16_t)races->time;
    }
    return;
  }
  if (races->known_count == KNOWN) {
    know_all(races, watch);
    return;
  }
  races->known[races->known_count++] =
      (struct Known){point, (uint16_t)owner, (uint16_t)state, (uint16_t)races->time};
}

static void publish(struct Release *at, struct Point point) {
  for (uint32_t i = 0; i < at->count; i++)
    if (at->points[i].run == point.run && at->points[i].item == point.item &&
        at->points[i].scope <= point.scope) {
      if (point.own >= at->points[i].own)
        at->points[i] = point;
      return;
    }
  if (at->count == RELEASED)
    at->over = 1;
  else
    at->points[at->count++] = point;
}

static struct Point here(struct Races *races, uint32_t item, uint32_t scope) {
  uint32_t sub = races->flags & SUBGROUPS ? races->sub_start[item >> races->shift] : 0;
  return (struct Point){races->run,           (uint16_t)item, (uint16_t)races->time,
                        (uint16_t)races->phase, (uint16_t)sub,  (uint16_t)scope, 0};
}

// Whether another launch may have taken a bucket in which this one has released something.
INLINE bool is_lost(const struct Races *races, const struct Release *at) {
  return !in_launch(races, at->base) && at->newest >= races->base;
}

// An item's atomic is about to write.
static void release(struct Races *races, const struct Watch *watch, uint32_t item, uint64_t address,
                    uint32_t how) {
  uint32_t scope = how & 0xff, until = UINT32_MAX;
  struct Point point;
  if (how & ORDERS) {
    tick(races, watch);
    point = here(races, item, scope);
  } else {
    bool fenced = false;
    for (uint32_t i = 0; i < races->known_count; i++)
      if (races->known[i].state == FENCED && races->known[i].owner == item) {
        point = races->known[i].point;
        until = races->known[i].learned;
        fenced = true;
      }
    if (!fenced)
      return;
    scope = scope < point.scope ? scope : point.scope;
    point.scope = (uint16_t)scope;
  }
  struct Release *at = bucket(watch, address);
  enter(&at->lock);
  if (at->address != address || !in_launch(races, at->base)) {
    // What was released by way of other locations of the same bucket is not told apart any more.
    at->over = in_launch(races, at->base) ? at->address != 0 : is_lost(races, at);
    at->address = address;
    at->base = races->base;
    at->count = 0;
    if (at->newest < races->base)
      at->newest = races->base;
  }
  publish(at, point);
  for (uint32_t i = 0; i < races->known_count; i++) {
    const struct Known *it = &races->known[i];
    if (it->state != HOLDS || !owns(races, it->owner, item) || it->learned >= until)
      continue;
    struct Point other = it->point;
    other.scope = (uint16_t)scope;
    publish(at, other);
  }
  at->over |= races->all_known;
  leave(&at->lock);
}

// An item's atomic has read.
static void acquire(struct Races *races, const struct Watch *watch, uint32_t item, uint64_t address,
                    uint32_t how) {
  struct Release *at = bucket(watch, address);
  enter(&at->lock);
  if (in_launch(races, at->base)) {
    for (uint32_t i = 0; at->address == address && i < at->count; i++) {
      struct Point point = at->points[i];
      bool is_mine = point.run == races->run;
      if ((is_mine && point.item == item) ||
          (!is_mine && (point.scope < DEVICE || (how & 0xff) < DEVICE)))
        continue;
      learn(races, watch, point, item, how & ORDERS ? HOLDS : PENDING);
    }
  }
  if (in_launch(races, at->base) ? at->over : is_lost(races, at)) {
    if (how & ORDERS)
      know_all(races, watch);
    else
      races->all_pending = 1;
  }
  leave(&at->lock);
}

static void fence(struct Races *races, const struct Watch *watch, uint32_t item, uint32_t how) {
  if (how & ACQUIRES && races->all_pending)
    know_all(races, watch);
  if (how & ACQUIRES)
    for (uint32_t i = 0; i < races->known_count; i++) {
      struct Known *it = &races->known[i];
      if (it->state == PENDING && it->owner == item &&
          (it->point.run == races->run || (how & 0xff) == DEVICE)) {
        it->state = HOLDS;
        it->learned = (uint16_t)races->time;
      }
    }
  if (how & RELEASES) {
    tick(races, watch);
    learn(races, watch, here(races, item, how & 0xff), item, FENCED);
  }
}

#endif
