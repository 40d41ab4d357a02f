// The virtual hardware, seen as a vendor's runtime: C functions that return an error code, opaque handles, no exceptions.
// Nothing here knows of PyTorch; a real device's runtime could be put under the same header.
//
// A device is a memory capacity and a set of in-order streams. Kernels are host functions. Each stream has a queue and one
// thread that works it off in order (TASK_QUEUE_ENABLE=1, the default); with TASK_QUEUE_ENABLE=0 or ASCEND_LAUNCH_BLOCKING=1 a
// launch has run its kernel when it returns.
#pragma once
#include <cstddef>
#include <cstdint>

#define VNPU_API __attribute__((visibility("default")))
#define VNPU_MAX_DEVICES 64

extern "C" {

typedef enum vnpuError : int {
  VNPU_SUCCESS = 0,
  VNPU_ERROR_INVALID_VALUE = 1,      // an argument is out of range or null
  VNPU_ERROR_INVALID_DEVICE = 2,     // device ordinal outside [0, count)
  VNPU_ERROR_OUT_OF_MEMORY = 3,      // the device's capacity, or the host's memory, does not suffice
  VNPU_ERROR_INVALID_HANDLE = 4,     // not a live stream, event or allocation
  VNPU_ERROR_NOT_READY = 5,          // queried work has not completed
  VNPU_ERROR_BAD_FORK = 6,           // the process was forked after the runtime had been initialised
  VNPU_ERROR_BAD_ENVIRONMENT = 7,    // an environment variable cannot be read
  VNPU_ERROR_CLOSED = 8,             // vnpuOpen has not been called yet
  VNPU_ERROR_LAUNCH_FAILED = 9,      // a kernel that was launched before has failed; told once
  VNPU_ERROR_ALREADY_REGISTERED = 10,  // host memory that is pinned already, in whole or in part
  VNPU_ERROR_NOT_REGISTERED = 11,      // the start of no registered host memory
} vnpuError_t;

typedef struct vnpuStream* vnpuStream_t;
typedef struct vnpuEvent* vnpuEvent_t;
typedef void (*vnpuKernel_t)(void* argument);

// Figures of pinned host memory, in bytes and numbers of blocks since the start (or the last reset).
typedef struct vnpuMemoryStats {
  int64_t current, peak, allocated, freed;
  int64_t blocks, blocks_peak, blocks_allocated, blocks_freed;
} vnpuMemoryStats;

VNPU_API const char* vnpuGetErrorString(vnpuError_t error);
// What was wrong, after VNPU_ERROR_BAD_ENVIRONMENT or VNPU_ERROR_LAUNCH_FAILED in this thread.
VNPU_API const char* vnpuGetLastErrorDetail(void);

// ---- devices ----
// The number of devices is read from the environment until vnpuInit fixes it: VNPU_DEVICES (default 2), limited by
// ASCEND_RT_VISIBLE_DEVICES (a list of ordinals; reading stops at the first that names no device).
VNPU_API vnpuError_t vnpuGetDeviceCount(int* count);
// The runtime refuses to start before vnpuOpen: whoever loads it first sets everything up, and touches no device meanwhile.
VNPU_API void vnpuOpen(void);
VNPU_API vnpuError_t vnpuInit(void);
VNPU_API int vnpuIsInitialized(void);
VNPU_API int vnpuInBadFork(void);
VNPU_API vnpuError_t vnpuSetDevice(int device);  // of the calling thread
VNPU_API vnpuError_t vnpuGetDevice(int* device);

// ---- memory ----
// A kernel of the host may bring the bytes of its result itself: whoever lets a device own such bytes charges them to it, and
// discharges them in the end. Either way VNPU_ERROR_OUT_OF_MEMORY tells that they are beyond what this process may use.
VNPU_API vnpuError_t vnpuMalloc(void** pointer, size_t bytes, int device);  // 0 bytes: a null pointer
VNPU_API vnpuError_t vnpuFree(void* pointer);  // waits for nothing; VNPU_ERROR_INVALID_HANDLE for what vnpuMalloc did not give
VNPU_API vnpuError_t vnpuMemCharge(size_t bytes, int device);
VNPU_API void vnpuMemDischarge(size_t bytes, int device);
VNPU_API vnpuError_t vnpuMemGetInfo(size_t* free, size_t* total, int device);
// How much of a device's capacity this process may use: a fraction from 0 to 1 (the default). What is in use stays in use.
VNPU_API vnpuError_t vnpuMemSetFraction(double fraction, int device);
VNPU_API vnpuError_t vnpuMemGetFraction(double* fraction, int device);
// How many bytes may be in use on the device.
VNPU_API vnpuError_t vnpuMemGetAllowed(size_t* allowed, int device);
VNPU_API int vnpuMemIsDevice(const void* pointer);  // whether it lies in what vnpuMalloc has given

// ---- pinned host memory ----
VNPU_API vnpuError_t vnpuHostAlloc(void** pointer, size_t bytes);
VNPU_API vnpuError_t vnpuHostFree(void* pointer);
// Pins memory that the caller owns, and lets go of it. The caller keeps it alive in between, and waits for the copies from and
// to it before it unregisters it.
VNPU_API vnpuError_t vnpuHostRegister(void* pointer, size_t bytes, unsigned flags);
VNPU_API vnpuError_t vnpuHostUnregister(void* pointer);
VNPU_API int vnpuHostIsPinned(const void* pointer);
// Of what vnpuHostAlloc gave out.
VNPU_API vnpuError_t vnpuHostGetStats(vnpuMemoryStats* stats);
VNPU_API void vnpuHostResetPeak(void);
VNPU_API void vnpuHostResetAccumulated(void);

// ---- streams ----
// Stream 0 of each device always exists. Handles live as long as the process, as torch copies stream ids freely; those of
// destroyed streams are known as such (VNPU_ERROR_INVALID_HANDLE), and neither they nor their ids are given out again.
VNPU_API vnpuError_t vnpuStreamCreate(vnpuStream_t* stream, int device, int priority);
// What is in the queue still runs; nothing more is taken. Any value may be given: what is no live stream that was created, is
// VNPU_ERROR_INVALID_HANDLE, and so is stream 0 of a device.
VNPU_API vnpuError_t vnpuStreamDestroy(vnpuStream_t stream);
// VNPU_SUCCESS for a live stream, VNPU_ERROR_INVALID_HANDLE for any other value.
VNPU_API vnpuError_t vnpuStreamCheck(vnpuStream_t stream);
VNPU_API vnpuError_t vnpuStreamFromId(vnpuStream_t* stream, int device, int64_t id);
VNPU_API int64_t vnpuStreamId(vnpuStream_t stream);
VNPU_API int vnpuStreamDevice(vnpuStream_t stream);
VNPU_API int vnpuStreamPriority(vnpuStream_t stream);
VNPU_API vnpuStream_t vnpuGetCurrentStream(int device);  // of the calling thread; null for an invalid device
VNPU_API vnpuError_t vnpuSetCurrentStream(vnpuStream_t stream);
// Whether launches are queued. Fixed by vnpuInit.
VNPU_API int vnpuQueueEnabled(void);
// Called once on each thread that works off a queue, before its first kernel. `kernels` is how many kernels may run at once on
// all queues together.
VNPU_API void vnpuConfigureQueues(void (*thread_start)(void), int kernels);
// Called by a host thread before it goes to sleep for a queue, and after: a place to let go of locks that kernels or listeners
// need. What the first returns is handed to the second.
VNPU_API void vnpuConfigureWaiting(void* (*before)(void), void (*after)(void*));
// Puts a kernel into the stream's queue and returns; waits while the queue is full. The kernel owns `argument`, must not throw,
// and tells a failure by vnpuFail.
VNPU_API vnpuError_t vnpuLaunch(vnpuStream_t stream, const char* name, vnpuKernel_t kernel, void* argument);
// Runs a kernel on the calling thread, after all that is in the stream's queue. What it throws passes through. `exclusive`: no other
// kernel of the stream runs meanwhile; such a kernel must not wait for another thread that may launch on the stream.
VNPU_API vnpuError_t vnpuRun(vnpuStream_t stream, const char* name, vnpuKernel_t kernel, void* argument, int exclusive);
// Called by a kernel: the next synchronising call on its stream returns VNPU_ERROR_LAUNCH_FAILED. The first failure is kept.
VNPU_API void vnpuFail(vnpuStream_t stream, const char* detail);
VNPU_API vnpuError_t vnpuStreamQuery(vnpuStream_t stream);
VNPU_API vnpuError_t vnpuStreamSynchronize(vnpuStream_t stream);
VNPU_API vnpuError_t vnpuStreamWaitEvent(vnpuStream_t stream, vnpuEvent_t event);
VNPU_API vnpuError_t vnpuDeviceSynchronize(int device);
// For whoever keeps memory: the place in a stream's queue behind all that is in it, and whether the queue has come there. Neither
// is a synchronisation that a program made, so neither is told to listeners.
VNPU_API uint64_t vnpuStreamMark(vnpuStream_t stream);
VNPU_API int vnpuStreamReached(vnpuStream_t stream, uint64_t mark);
// Waits for all queues of the device; failures stay for the next synchronising call. 0 where it could not: the calling thread is
// inside a kernel in front of what is queued.
VNPU_API int vnpuDeviceDrain(int device);

// ---- events ----
VNPU_API vnpuError_t vnpuEventCreate(vnpuEvent_t* event, int timing);
VNPU_API vnpuError_t vnpuEventDestroy(vnpuEvent_t event);
VNPU_API vnpuError_t vnpuEventRecord(vnpuEvent_t event, vnpuStream_t stream);
VNPU_API vnpuError_t vnpuEventQuery(vnpuEvent_t event);  // an event never recorded is complete
VNPU_API vnpuError_t vnpuEventSynchronize(vnpuEvent_t event);
VNPU_API vnpuError_t vnpuEventElapsed(double* milliseconds, vnpuEvent_t start, vnpuEvent_t end);

}  // extern "C"
