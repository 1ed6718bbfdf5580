package fleet

import (
	"fmt"
	"os"
)

// pings are client-go's settings for HTTP/2 connections, in seconds. With its
// defaults of 30 and 15 a frozen member is noticed after 45 s; half of that
// still forgives a long pause of a healthy one.
var pings = map[string]string{
	"HTTP2_READ_IDLE_TIMEOUT_SECONDS": "15",
	"HTTP2_PING_TIMEOUT_SECONDS":      "10",
}

// TunePings sets what the environment does not set. Call it before any
// connection to a member is made.
func TunePings() error {
	for name, seconds := range pings {
		if os.Getenv(name) != "" {
			continue
		}
		if err := os.Setenv(name, seconds); err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
	}
	return nil
}
