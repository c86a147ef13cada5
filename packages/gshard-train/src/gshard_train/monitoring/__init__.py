"""What a run tells: figures, progress, pictures, profiles, an overview."""
