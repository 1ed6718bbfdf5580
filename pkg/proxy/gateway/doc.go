// Package gateway serves every request on a member or dual kind: reads from
// the member cache, everything else routed to the cluster that owns the object.
//
// Data flow of a read:
//
//	request -> RequestInfo, options (validated) -> cache.Collection
//	        -> one cache.Snapshot or cache.Watcher (selectors applied)
//	        -> bytes of each object in the negotiated form -> client, flushed
//
// The bytes of an object are taken from the cache as they are wherever the
// client's encoding allows it: protobuf answers are spliced, never decoded.
// Where it does not, one object at a time is decoded, so that the memory of an
// answer does not grow with the number of objects.
//
// A JSON or YAML answer of a built-in kind goes through this program's Go type
// of the kind. Fields that a newer member knows and this type does not are
// therefore missing in it; a protobuf answer carries them.
package gateway
