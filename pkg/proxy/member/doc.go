// Package member carries requests to one member cluster and its answers back,
// so that neither side can do more to the other than the request says.
//
// Data flow:
//
//	client request -> headers cleaned (nothing of the client's identity stays)
//	  -> identity set (member's credentials, the user by impersonation)
//	  -> Transport.Do     one bounded answer, for objects
//	     Transport.Stream copied as it comes: logs, watches, exec, proxies
//	  -> member
//
// What a member cannot do: redirect us or the client, switch a connection to
// another protocol than the two that Kubernetes streams with, leave a raw
// connection behind after a refused upgrade, keep a caller waiting without
// being alive, or answer without bounds.
//
// Nothing here sends a request a second time. An error says whether the member
// may have seen the request (UnreachableError.Sent).
package member
