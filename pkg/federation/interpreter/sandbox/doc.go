// Package sandbox runs Lua that users have written, on plain JSON values, and
// lets it do nothing else: no files, no processes, no loading of code, a bounded
// number of steps, bytes and seconds.
//
//	source -> parse -> harden -> compile           (Compile, once a script)
//	JSON values -> tables -> function -> JSON values (Call, a fresh environment each)
//
// It is the only importer of the Lua machine, which does not bound memory by
// itself: whatever makes more than a few bytes in one step is replaced by a
// function that accounts for it.
package sandbox
