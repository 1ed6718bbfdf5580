package member

import (
	"errors"
	"fmt"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

var (
	// ErrFrozen: the member took the request and answers nothing at all.
	ErrFrozen = errors.New("does not answer")
	// ErrTooLong: the member lives but did not answer within the limit.
	ErrTooLong = errors.New("did not answer in time")
	// ErrTooLarge: the answer is larger than any object can be.
	ErrTooLarge = errors.New("answer is too large")
	// ErrRedirect: the member tried to send the request elsewhere.
	ErrRedirect = errors.New("attempted to redirect the request, which is not permitted")
	// ErrCredentials: the member does not accept our credentials.
	ErrCredentials = errors.New("did not accept this endpoint's credentials")
	// ErrUpgradeToken: the client asked for another protocol than
	// SPDY/3.1 or websocket.
	ErrUpgradeToken = errors.New("only upgrades to SPDY/3.1 and websocket are possible")
	// ErrSwitched: the member switched to another protocol without being
	// asked to.
	ErrSwitched = errors.New("switched to another protocol without being asked to")
	// ErrPath: the path has dot segments, which something on the way
	// could resolve to another path than the one that was authorized.
	ErrPath = errors.New("dot segments are not allowed in a path")
	// ErrNoUser: the user is to be impersonated, and there is none.
	ErrNoUser = errors.New("request has no user")
)

// UnreachableError says that a member gave no usable answer.
type UnreachableError struct {
	Cluster cache.ClusterName
	// Sent is set when the member may have seen the request, and so may
	// have applied it.
	Sent bool
	// Lasting is set when a moment's wait will not cure it: the member is
	// silent, or has not been reached for some seconds.
	Lasting bool
	Err     error
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("%s: %v", describe(e.Cluster), e.Err)
}

func (e *UnreachableError) Unwrap() error { return e.Err }

func describe(name cache.ClusterName) string {
	if name == cache.ControlPlane {
		return "control plane"
	}
	return fmt.Sprintf("cluster %q", string(name))
}
