// Package adoption carries out the commands adopt and release.
//
//	Adopt:   objects in members -> adopt.Make (pure) -> dry run in each member
//	         -> policies, then the template, on hold -> its binding is as planned
//	         -> the hold is lifted, the engine takes over
//	Release: the policy preserves -> the binding says so -> the template is
//	         deleted, copies lose their marks and stay -> the policies go
//
// Nothing is written in a member here: that is the engine's. Both commands can be
// interrupted anywhere and run again.
package adoption
