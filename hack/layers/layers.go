// Package layers holds no code: its test checks who imports whom among the
// product's packages, and that what decides has no client and no clock.
package layers
