//! Pure structure: trees and barrier partners as functions of rank and size.
