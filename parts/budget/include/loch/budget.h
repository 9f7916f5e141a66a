/* SPDX-License-Identifier: MIT */
/** @file budget.h
 *  One budget for several processes: libloch_budget.so.
 *
 *      loch_budget *budget;
 *      loch_budget_member *member;
 *      const loch_budget_options options = {.size = sizeof options, .total_bytes = (size_t)64 << 30};
 *      const loch_budget_member_options mine = {.size = sizeof mine, .minimum_bytes = (size_t)16 << 30};
 *      LOCH_CHECK(loch_budget_open("gpu0", &options, &budget));
 *      LOCH_CHECK(loch_budget_member_create(budget, pool, NULL, &mine, &member));
 *      ...                                  // the pool is used as before
 *      loch_budget_member_destroy(member);
 *      loch_budget_close(budget);
 *
 *  Pools of several processes of one user hold at most `total_bytes` together. Each of them is a member: it has a
 *  minimum that is always available to it, a limit, and a weight. It may borrow what is neither held nor promised as a
 *  minimum. When a member needs memory below its minimum or its fair share, the members that have borrowed give free
 *  memory of their pools back. Blocks in use stay: a request that cannot be served within a short wait fails with
 *  E_LIMIT, and the sentence of the error record names the members and what each holds.
 *
 *  A member has a *grant*: bytes that its pool may hold from the device. The pool asks for more only when it has
 *  reached its grant; allocations from memory that it holds cost nothing more than without a budget.
 *
 *  The members find each other by a file. A process that is killed at any moment leaves the budget: others notice it
 *  when they need memory, and have its bytes. The last one that closes the budget removes the file.
 *
 *  A child of a fork has no budget: calls with objects of its parent give E_FORKED, except destroy and close. The pool
 *  that it inherited keeps the limit that it had, and does not ask for more.
 */
#ifndef LOCH_BUDGET_H
#define LOCH_BUDGET_H

#include <loch/loch.h>

LOCH_BEGIN_DECLS

/** @name Budgets */
/** @{ */

/** A budget that several processes share. */
typedef struct loch_budget loch_budget;

/** What a process does with a budget. */
typedef enum loch_budget_access {
    LOCH_BUDGET_JOIN, /**< it may have members; the budget is made if it does not exist */
    LOCH_BUDGET_LOOK  /**< it reads the figures; it makes nothing and keeps nothing alive */
} loch_budget_access;

/** Options of loch_budget_open. Zero means default; a NULL pointer means all defaults. */
typedef struct loch_budget_options {
    size_t size; /**< sizeof(loch_budget_options) */
    /** Bytes of the budget if it does not exist yet; 0: it must exist. */
    size_t total_bytes;
    /** Bytes by which a member keeps its grant ahead of its pool, if it does not exist yet; 0 for 1/64 of the total, at
     *  most 1 GiB. */
    size_t chunk_bytes;
    /** How long a request of this process waits for other processes to give memory back, in nanoseconds; 0 for 0.2
     *  seconds. A request with a timeout_ns waits for that time instead. */
    uint64_t wait_ns;
    loch_budget_access access; /**< what this process does with the budget */
} loch_budget_options;

/** Opens a budget, and makes it if it does not exist.
 *
 *  E_NOT_FOUND: it does not exist, and no total is given or access is LOCH_BUDGET_LOOK. E_EXISTS: it has another total
 *  than the one given. E_INVALID: the name is not valid, or the file or its folder belongs to another user or is open
 *  to others. E_UNSUPPORTED: the file was made by another version of the library, or its file system has no unnamed
 *  files. E_CORRUPT: the file is not a budget. E_LIMIT: the budget has no free seat. E_BUSY: another process holds the
 *  lock of the file and does not go on. E_HOST_MEMORY, E_IO. Any thread.
 *  @param name  up to 47 letters, digits and `.`, `_`, `-`, for a file in a folder of this user; or a path, with a '/'
 *               in it. A name is looked for in $XDG_RUNTIME_DIR/loch (/run/user/UID/loch without the variable) and in
 *               /dev/shm/loch-UID, and made in the first of them that belongs to this user alone
 *  @param out   owned by the caller; give it back with loch_budget_close. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_budget_open(const char *name, const loch_budget_options *options,
                                                    loch_budget **out);

/** Closes a budget. Its members keep it open until they are destroyed. The last process that leaves removes the file.
 *  NULL does nothing. Any thread. */
LOCH_API void loch_budget_close(loch_budget *budget);
LOCH_DEFINE_CLEAR(budget, loch_budget_close(object))

/** Returns the path of a budget's file. Borrowed; valid as long as the budget. NULL returns "". */
LOCH_API const char *loch_budget_get_path(const loch_budget *budget);

/** Figures of a budget, all taken at one moment. */
typedef struct loch_budget_info {
    size_t size;             /**< set by the caller to sizeof(loch_budget_info) */
    char name[48];           /**< name of the budget: the last part of its path */
    uint64_t total_bytes;    /**< bytes of the budget */
    uint64_t chunk_bytes;    /**< bytes by which members keep their grants ahead of their pools */
    uint64_t granted_bytes;  /**< grants of all members */
    uint64_t promised_bytes; /**< minima of all members */
    uint64_t held_bytes;     /**< bytes that the pools of all members held from the device when they last told */
    uint64_t free_bytes;     /**< bytes that can be borrowed now */
    size_t members;          /**< number of members */
    size_t processes;        /**< number of times that the budget is open to have members */
    size_t waiting;          /**< number of members whose requests wait for memory */
} loch_budget_info;

/** Reads the figures of a budget. Members that have died are not counted. Set `out->size` before the call. E_CORRUPT,
 *  E_IO, E_BUSY: the file cannot be read. E_FORKED. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_budget_get_info(loch_budget *budget, loch_budget_info *out);

/** Receives the path of one budget. A return value other than LOCH_OK ends the walk and becomes its result. */
typedef loch_status loch_budget_visitor(const char *path, void *user);

/** Walks the budgets of this user, folder by folder, in order of name. Removes those that no process has open.
 *  Budgets that were opened by a path elsewhere are not found. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_budget_walk(loch_budget_visitor *visitor, void *user);

/** @} */
/** @name Members */
/** @{ */

/** A pool that takes its memory within a budget. */
typedef struct loch_budget_member loch_budget_member;

/** Options of loch_budget_member_create. Zero means default; a NULL pointer means all defaults. */
typedef struct loch_budget_member_options {
    size_t size;          /**< sizeof(loch_budget_member_options) */
    size_t minimum_bytes; /**< bytes that are always available to the member, whatever others use */
    /** Most bytes that the member has at a time; 0 for the limit of its pool, or the total. */
    size_t limit_bytes;
    /** Part of the member in the bytes that are not promised, against the weights of others: its fair share is the
     *  minimum and that part. 0 for 1; at most 1000000. */
    uint32_t weight;
} loch_budget_member_options;

/** Makes a pool a member of a budget. From now on the pool's limit is the member's grant: do not call
 *  loch_pool_set_limit, and give the pool no second member. The minimum is granted at once if no member has borrowed
 *  it, otherwise as others give back. The member holds a reference on the pool, and runs one thread.
 *
 *  Requests with LOCH_ALLOC_NO_RETRY and loch_pool_wake do not ask for more: they are served from the grant. Call
 *  loch_budget_member_prepare before them.
 *
 *  E_INVALID: not a pool, or an option is not valid. E_LIMIT: the minima of all members would exceed the total, the
 *  pool holds more than the budget has left, or all seats are taken. E_UNSUPPORTED: the pool is a child with a range,
 *  or the budget is open to look. E_HOST_MEMORY, E_IO, E_CORRUPT, E_BUSY, E_FORKED. Any thread.
 *  @param pool  a pool or a wrapper around one
 *  @param name  for people, at most 47 bytes are kept; copied; NULL for the name of the pool
 *  @param out   owned by the caller; destroy it with loch_budget_member_destroy. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_budget_member_create(loch_budget *budget, loch_allocator *pool,
                                                             const char *name,
                                                             const loch_budget_member_options *options,
                                                             loch_budget_member **out);

/** Takes a pool out of its budget. The pool gets its old limit back; what it still holds is not counted any more. Must
 *  not be called from a pressure function of the pool. NULL does nothing. */
LOCH_API void loch_budget_member_destroy(loch_budget_member *member);
LOCH_DEFINE_CLEAR(budget_member, loch_budget_member_destroy(object))

/** Gets the grant for `bytes` more than the pool holds now. Waits as a request does. The member keeps the grant until
 *  the pool holds the memory, or until others need it; only its minimum is sure. For programs that know what they will
 *  need: a model that is loaded, a pool that wakes, a capture. E_LIMIT: the budget does not have them.
 *  E_OVERFLOW, E_IO, E_CORRUPT, E_BUSY, E_FORKED. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_budget_member_prepare(loch_budget_member *member, size_t bytes);

/** Figures of a member. */
typedef struct loch_budget_member_info {
    size_t size;             /**< set by the caller to sizeof(loch_budget_member_info) */
    int64_t pid;             /**< process of the member */
    char name[48];           /**< name of the member */
    char program[16];        /**< name of the program */
    char device[32];         /**< name of the pool's device */
    uint64_t minimum_bytes;  /**< bytes that are always available to it */
    uint64_t limit_bytes;    /**< most bytes that it has at a time */
    uint64_t share_bytes;    /**< fair share */
    uint64_t granted_bytes;  /**< grant: bytes that its pool may hold now */
    uint64_t held_bytes;     /**< bytes that its pool held from the device when it last told */
    uint64_t used_bytes;     /**< bytes of them in live blocks then */
    uint64_t borrowed_bytes; /**< grant above the minimum */
    uint64_t wanted_bytes;   /**< grant that a request waits for; 0 if none waits */
    uint64_t asked_bytes;    /**< bytes that others have asked it to give back, and that it has not answered */
    uint32_t weight;         /**< part in the bytes that are not promised */
} loch_budget_member_info;

/** Reads the figures of a member. Set `out->size` before the call. E_CORRUPT, E_IO, E_BUSY: the file cannot be read.
 *  E_FORKED. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_budget_member_get_info(loch_budget_member *member,
                                                               loch_budget_member_info *out);

/** Receives the figures of one member. Called without locks. A return value other than LOCH_OK ends the walk and
 *  becomes its result. */
typedef loch_status loch_budget_member_visitor(const loch_budget_member_info *info, void *user);

/** Walks the members of a budget in all processes, as they were at one moment. E_CORRUPT, E_IO, E_BUSY: the file cannot
 *  be read. E_FORKED. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_budget_walk_members(loch_budget *budget, loch_budget_member_visitor *visitor,
                                                            void *user);

/** @} */

LOCH_END_DECLS

#endif
